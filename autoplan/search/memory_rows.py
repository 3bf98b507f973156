"""The memory part of the integer programme: its variables, and rows that join where a solution needs too much."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from autoplan.search.check import Evaluation, tolerance_bytes
from autoplan.search.problem import Place, Problem

MIB = float(1 << 20)
SEGMENTS = 4
"""Rows join for the worst point of each of so many stretches of the program."""


class Programme(Protocol):
    """What this part asks of the programme that it belongs to (see `search.ilp`)."""

    problem: Problem
    lp: Any
    z: list[list[Any]]
    move: dict[tuple[int, int], Any]
    peak: Any
    values: list[float]

    def add(self, terms: list[tuple[Any, float]], sense: str, right: float) -> None:
        """Add the row ``sum of terms, sense, right``."""


class MemoryRows:
    """use, saved and load, and the memory rows seen so far."""

    def __init__(self, model: Programme) -> None:
        self.model = model
        assert model.problem.memory is not None
        self.memory = model.problem.memory
        self.rows: dict[tuple[str, int, int], None] = {}
        self.use: dict[int, Any] = {}
        self.saved: dict[int, Any] = {}
        self.buffer: list[Any] = []

    def tighten(self, evaluation: Evaluation) -> bool:
        """Rows for the worst points of every rank whose usage is above its limit, or above the peak variable."""
        added = False
        for direction, usage in evaluation.usage.items():
            for rank in range(usage.shape[1]):
                limit = self._limit(rank)
                if limit is None:
                    continue
                for start, stop in _stretches(len(usage), SEGMENTS):
                    point = start + int(usage[start:stop, rank].argmax())
                    key = (direction, point, rank)
                    if usage[point, rank] > limit + tolerance_bytes(limit) and key not in self.rows:
                        self._row(*key)
                        added = True
        return added

    def _limit(self, rank: int) -> float | None:
        if self.model.peak is None:
            return self.model.problem.limits[rank]
        return float(self.model.values[self.model.peak.index]) * MIB

    def _row(self, direction: str, point: int, rank: int) -> None:
        if not self.use:
            self._variables()
        self.rows[direction, point, rank] = None
        live, kept = (mask[point] for mask in self.memory.counts(direction))
        sizes = self.memory.bytes[:, rank] / MIB
        terms = [(self.use[u], float(sizes[u])) for u in self.use if live[u] and sizes[u]]
        terms += [(self.saved[u], float(sizes[u])) for u in self.saved if kept[u] and sizes[u]]
        if direction != "update":
            terms.append((self.buffer[rank], 1.0))
        fixed = self.memory.fixed(direction) / MIB
        if self.model.peak is not None:
            self.model.add([*terms, (self.model.peak, -1.0)], "<=", -fixed)
            return
        limit = self.model.problem.limits[rank]
        assert limit is not None
        self.model.add(terms, "<=", limit / MIB - fixed)

    def _variables(self) -> None:
        """Use and saved of every unit, at least as large as each expression that makes them; buffers likewise."""
        model, problem = self.model, self.model.problem
        lp = model.lp
        for unit in range(len(self.memory.units)):
            self.use[unit] = lp.add_variable(f"u{unit:06d}", lowBound=0, upBound=1)
            self.saved[unit] = lp.add_variable(f"v{unit:06d}", lowBound=0, upBound=1)
        self.buffer = [
            lp.add_variable(f"w{rank:06d}", lowBound=0) for rank in range(len(problem.limits))
        ]
        for row, choices in zip(model.z, problem.blocks, strict=True):
            gives: dict[int, dict[int, None]] = {}
            saves: dict[int, dict[int, None]] = {}
            for k, choice in enumerate(choices):
                self._collect(gives, choice.gives, k)
                self._collect(saves, choice.saves, k)
            for target, found in ((self.use, gives), (self.saved, saves)):
                for unit, numbers in found.items():
                    terms = [(row[k], 1.0) for k in numbers]
                    model.add([*terms, (target[unit], -1.0)], "<=", 0.0)
            self._loads(row, [[read.place for read in choice.reads] for choice in choices])
        for read in problem.required:
            loaded = self._unit(read.place)
            if read.state in problem.tensors[read.tensor].loadable and loaded is not None:
                model.add([(self.use[loaded], 1.0)], ">=", 1.0)
        for (t, m), variable in model.move.items():
            move = problem.tensors[t].moves[m]
            for rank, size in enumerate(move.buffer_bytes):
                if size:
                    terms = [(variable, size / MIB), (self.buffer[rank], -1.0)]
                    model.add(terms, "<=", 0.0)
            made = self._unit(Place(t, move.transition.target))
            view = (move.transition.source, move.transition.target) == ("H", "O")
            if made is not None and not view:
                model.add([(variable, 1.0), (self.use[made], -1.0)], "<=", 0.0)

    def _loads(self, row: list[Any], reads: list[list[Place]]) -> None:
        """What is read without being made is loaded; owned rows are there where owned and halo rows are."""
        numbers: dict[Place, list[int]] = {}
        for k, places in enumerate(reads):
            for place in places:
                if place.state in self.model.problem.tensors[place.tensor].loadable:
                    numbers.setdefault(place, []).append(k)
        for place, found in numbers.items():
            unit = self._unit(place)
            if unit is None:
                continue
            terms = [(row[k], 1.0) for k in found] + [(self.use[unit], -1.0)]
            halo = self._unit(Place(place.tensor, "H"))
            if place.state == "O" and halo is not None:
                terms.append((self.use[halo], -1.0))
            self.model.add(terms, "<=", 0.0)

    def _unit(self, place: Place) -> int | None:
        name = self.model.problem.tensors[place.tensor].name
        return self.memory.unit_of.get((name, place.state))

    def _collect(
        self, into: dict[int, dict[int, None]], places: Iterable[Place], number: int
    ) -> None:
        for place in places:
            unit = self._unit(place)
            if unit is not None:
                into.setdefault(unit, {})[number] = None


def _stretches(points: int, parts: int) -> Iterator[tuple[int, int]]:
    edges = [points * part // parts for part in range(parts + 1)]
    return ((a, b) for a, b in itertools.pairwise(edges) if a < b)
