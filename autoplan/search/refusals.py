"""Why candidates were rejected, in words: equal reasons once, with who was rejected for them. Data only, no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

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
