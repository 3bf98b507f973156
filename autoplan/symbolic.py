"""Sums of products of row counts, and sums of their logarithms: costs as functions of a graph's sizes. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of monomials ``coefficient * product(symbols)``; symbols are axis names, a constant has none."""

    terms: tuple[tuple[float, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, coefficient: float, *symbols: str) -> Polynomial:
        """One monomial; zero gives the empty sum."""
        return cls(((float(coefficient), tuple(sorted(symbols))),) if coefficient else ())

    @classmethod
    def _from(cls, pairs: Iterable[tuple[float, tuple[str, ...]]]) -> Polynomial:
        total: dict[tuple[str, ...], float] = {}
        for coefficient, symbols in pairs:
            total[symbols] = total.get(symbols, 0.0) + coefficient
        return cls(tuple((c, s) for s, c in sorted(total.items()) if c))

    def __add__(self, other: Polynomial | float) -> Polynomial:
        right = other if isinstance(other, Polynomial) else Polynomial.of(other)
        return self._from((*self.terms, *right.terms))

    def __mul__(self, other: Polynomial | float) -> Polynomial:
        right = other if isinstance(other, Polynomial) else Polynomial.of(other)
        return self._from(
            (a * b, tuple(sorted((*s, *t)))) for a, s in self.terms for b, t in right.terms
        )

    def evaluate(self, rows: Mapping[str, float]) -> float:
        """The value where axis ``name`` has ``rows[name]`` rows. Raises KeyError for an axis without rows."""
        total = 0.0
        for coefficient, symbols in self.terms:
            for symbol in symbols:
                coefficient *= rows[symbol]
            total += coefficient
        return total

    def __str__(self) -> str:
        return " + ".join("*".join([f"{c:g}", *s]) for c, s in self.terms) or "0"


ZERO = Polynomial()


def most(axis: str, end: str, into: str) -> str:
    """The symbol for the most rows of an axis that share one position: ``most(edge:dst>node)`` is the largest in-degree.

    Args:
        axis: whose rows are counted.
        end: which end points there (``src``, ``dst``, ``self``).
        into: the axis pointed into.
    """
    return f"most({axis}:{end}>{into})"


def counted_in(symbol: str) -> str | None:
    """The axis whose rows a symbol of `most` counts, or None for the name of an axis."""
    return symbol[5:].rpartition(":")[0] if symbol.startswith("most(") else None


@dataclass(frozen=True, slots=True)
class Log:
    """``coefficient * log2(of) ** power``, zero where ``of`` is at most one.

    Symbols of ``of`` are axis names, or what `most` returns.
    """

    coefficient: float
    of: Polynomial
    power: int = 1

    def evaluate(self, values: Mapping[str, float]) -> float:
        """The value where these symbols have these values."""
        return self.coefficient * math.log2(max(1.0, self.of.evaluate(values))) ** self.power

    def __str__(self) -> str:
        factor = "" if self.coefficient == 1 else f"{self.coefficient:g}*"
        return f"{factor}log2({self.of})" + (f"^{self.power}" if self.power > 1 else "")


@dataclass(frozen=True, slots=True)
class Depth:
    """A chain of dependent operations: a constant and logarithms of what is reduced in trees (a polynomial has none).

    Conventions of Besta & Hoefler: an element-wise op is one operation deep, a reduction or a product contracted over r
    entries log2 r, a scatter log2 of the most rows that go to one position, a sort of r entries log2(r) ** 2.
    """

    constant: float = 0.0
    logs: tuple[Log, ...] = ()

    @classmethod
    def over(cls, rows: Polynomial, *, constant: float = 1.0, power: int = 1) -> Depth:
        """A reduction over ``rows`` entries, after ``constant`` operations."""
        return cls(constant, (Log(1.0, rows, power),))

    def __add__(self, other: Depth) -> Depth:
        total: dict[tuple[Polynomial, int], float] = {}
        for log in (*self.logs, *other.logs):
            key = (log.of, log.power)
            total[key] = total.get(key, 0.0) + log.coefficient
        logs = tuple(Log(coefficient, of, power) for (of, power), coefficient in total.items())
        return Depth(self.constant + other.constant, logs)

    @property
    def symbols(self) -> frozenset[str]:
        """What it depends on: axis names, and what `most` returns."""
        return frozenset(s for log in self.logs for _, symbols in log.of.terms for s in symbols)

    def evaluate(self, values: Mapping[str, float]) -> float:
        """The value where these symbols have these values. Raises KeyError for a symbol without one."""
        return self.constant + sum(log.evaluate(values) for log in self.logs)

    def __str__(self) -> str:
        parts = [f"{self.constant:g}"] if self.constant or not self.logs else []
        return " + ".join([*parts, *map(str, self.logs)])


INSTANT = Depth()
