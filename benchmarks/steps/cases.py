"""The cases: which model runs on which graph, and on which instead when a step takes too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.steps.models import MODELS

_ELSEWHERE = {"RGCN": "relations", "HGT": "types", "GIN-graphs": "nci1"}
FEWER_EDGES = "-0.14M"


@dataclass(frozen=True, slots=True)
class Case:
    """A model on a graph of `benchmarks.steps.graphs.GRAPHS`."""

    model: str
    graph: str

    @property
    def smaller(self) -> Case | None:
        """The case with 0.14 M edges, for steps of over ten seconds; None where there is no smaller graph."""
        if self.graph not in ("community", "relations", "types"):
            return None
        return Case(self.model, self.graph + FEWER_EDGES)


CASES = tuple(
    Case(model, graph)
    for model in MODELS
    for graph in ((_ELSEWHERE[model],) if model in _ELSEWHERE else ("community", "amazon_cs"))
)


def selected(models: Sequence[str], graphs: Sequence[str]) -> tuple[Case, ...]:
    """The cases of these models and graphs, all where none is named; a smaller graph has those of the bigger one.

    Raises:
        LookupError: a name that there is not, or no case left.
    """
    by_model = {case.model.casefold(): case.model for case in CASES}
    known = {case.graph for case in CASES} | {
        case.smaller.graph for case in CASES if case.smaller is not None
    }
    for name in models:
        if name.casefold() not in by_model:
            raise LookupError(f"there is no model {name!r}; there are {', '.join(MODELS)}")
    for name in graphs:
        if name not in known:
            raise LookupError(f"there is no graph {name!r}; there are {', '.join(sorted(known))}")
    wanted = {by_model[name.casefold()] for name in models} or set(MODELS)
    found = []
    for case in CASES:
        if case.model not in wanted:
            continue
        if not graphs or case.graph in graphs:
            found.append(case)
        if case.smaller is not None and case.smaller.graph in graphs:
            found.append(case.smaller)
    if not found:
        raise LookupError(f"none of {', '.join(sorted(wanted))} runs on {', '.join(graphs)}")
    return tuple(found)
