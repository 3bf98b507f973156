"""Why candidates were rejected, in words: equal reasons once, with who was rejected for them. Data only, no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from autoplan.search.result import Candidate

MIB = float(1 << 20)
MOST_NAMED = 2
"""With more candidates than this for one reason they are counted by strategy."""


class Rejectable(Protocol):
    """A candidate, as the search, a plan or a report has it."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def strategy(self) -> str:
        """The family."""

    @property
    def reason(self) -> str | None:
        """Why it was rejected, or None."""


def refusals(candidates: Iterable[Rejectable]) -> list[str]:
    """A line for each reason, in the order of the first of its candidates: ``10 candidates (7 pipeline, 3 hybrid): ...``."""
    reasons: dict[str, list[Rejectable]] = {}
    for candidate in candidates:
        if candidate.reason is not None:
            reasons.setdefault(candidate.reason, []).append(candidate)
    return [f"{named(together)}: {reason}" for reason, together in reasons.items()]


def named(candidates: Iterable[Rejectable]) -> str:
    """Their names, or of more than two how many of each strategy there are."""
    together = list(candidates)
    if len(together) <= MOST_NAMED:
        return ", ".join(candidate.name for candidate in together)
    kinds = Counter(candidate.strategy for candidate in together)
    if len(kinds) == 1:
        return f"{len(together)} {together[0].strategy} candidates"
    return f"{len(together)} candidates ({', '.join(f'{n} {kind}' for kind, n in kinds.items())})"


def nothing_possible(rejected: Sequence[Candidate]) -> str:
    """Why there is no plan: one reason, or a list that begins with the smallest change that would do.

    Of candidates of one strategy that lack memory, the one that needs least is told.
    """
    reasons = {candidate.reason for candidate in rejected}
    if len(reasons) == 1:
        return rejected[0].reason or ""
    least: dict[str, Candidate] = {}
    for candidate in rejected:
        if candidate.needs is None:
            continue
        before = least.get(candidate.strategy)
        if before is None or _need(candidate) < _need(before):
            least[candidate.strategy] = candidate
    nearest = sorted(least.values(), key=_need)
    others = [candidate for candidate in rejected if candidate.needs is None]
    lines = ["no plan is possible"]
    if nearest:
        first = nearest[0]
        amount = f"{(first.needs or 0.0) / MIB:.1f} MiB"
        one = len(first.ranks) == 1
        what = "a device of {}" if one else "devices of {} each"
        if not first.suffices:
            lines[0] += f"; it takes {what.format(f'more than {amount}')}, for {first.name}"
        else:
            known = all(c.suffices or _need(c)[1] >= _need(first)[1] for c in nearest)
            change = "the smallest change" if known else "a change"
            device = what.format(f"at least {amount}")
            lines[0] += f"; {change} that would do: {device}, for {first.name}"
    for candidate in nearest:
        same = sum(c.strategy == candidate.strategy and c.needs is not None for c in rejected) - 1
        more = f" ({named_more(same, candidate.strategy)} not fit either)" if same else ""
        lines.append(f"{candidate.name}: {candidate.reason}{more}")
    return "\n  ".join([*lines, *refusals(others)])


def named_more(number: int, strategy: str) -> str:
    """``1 more data candidate does``, ``2 more data candidates do``."""
    return (
        f"1 more {strategy} candidate does"
        if number == 1
        else f"{number} more {strategy} candidates do"
    )


def _need(candidate: Candidate) -> tuple[bool, float]:
    """What it needs; numbers that do not count activations come last."""
    return not candidate.suffices, candidate.needs or 0.0
