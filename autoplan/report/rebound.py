"""What binding a plan to another graph changed, as facts and as text. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from autoplan.plan import PlanData
from autoplan.report.comparison import Change, compare
from autoplan.report.comparison_text import change_sections
from autoplan.report.text import render
from autoplan.report.units import percent, seconds, size

_TOLD = ("graph", "devices", "predicted", "partition", "memory", "candidates")
"""Parts of a comparison that are told: not the fingerprints, and not the strategies, which are kept."""


@dataclass(frozen=True, slots=True)
class Rebound:
    """What changed; prints as text.

    Attributes:
        changes: every fact that is another one now; seconds and bytes. verdict: whether the plan is still the best.
    """

    changes: tuple[Change, ...]
    verdict: str

    @classmethod
    def of(cls, before: PlanData, now: PlanData) -> Rebound:
        """From a plan to the same plan on another graph."""
        changes = tuple(each for each in compare(before, now) if each.part in _TOLD)
        return cls(changes, _verdict(now))

    def __str__(self) -> str:
        if not self.changes:
            return f"nothing changed\n{self.verdict}\n"
        sections = change_sections(self.changes, "before", "now")
        return f"{render(*sections)}\n{self.verdict}\n"


def _verdict(now: PlanData) -> str:
    """Whether it fits, how close, and whether another candidate would now be better."""
    fullest = max(now.predicted.peak_bytes, key=lambda peak: peak.value).value
    capacities = [
        m.capacity for stage in now.stages for m in stage.memory if m.capacity is not None
    ]
    room = f" of {size(min(capacities))}" if capacities else ""
    fits = f"it fits: {size(fullest)}{room} at the peak of the fullest device"
    of_memory = now.objective == "memory"
    prices = {
        rival.name: price
        for rival in now.alternatives
        if (price := rival.peak_bytes if of_memory else rival.step_seconds) is not None
        and not rival.chosen
        and (of_memory or rival.strategy != "model")
    }
    mine = fullest if of_memory else now.predicted.step_seconds.value
    name = min(prices, key=lambda each: prices[each], default=None)
    if name is None or prices[name] >= mine:
        return f"{fits}; no other candidate {'needs less' if of_memory else 'is faster'}"
    shown = size if of_memory else seconds
    what = "the peak" if of_memory else "a step"
    saved = (
        f"{name} would now save {percent(1 - prices[name] / mine)} of {what} "
        f"({shown(prices[name])} against {shown(mine)})"
    )
    if now.forced:
        return f'{fits}; kept as strategy="{now.strategy}" was asked for, though {saved}'
    return f"{fits}; {saved}: plan again to take it"
