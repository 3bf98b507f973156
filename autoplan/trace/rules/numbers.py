"""Numbers that a program computes from sizes, as polynomials in the rows of axes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from autoplan.opgraph import Axis, Polynomial
from autoplan.program.ir import Expression
from autoplan.states import parts_of
from autoplan.trace.rules.axes import Dim, Dims

_SIZE = re.compile(r"\b(?:s(\d+)_(\d+)|n(\d+)|v(\d+)\.size\((\d+)\)|v(\d+)\.numel\(\))")


class Numbers:
    """Resolves the sizes that expressions name.

    Args:
        dims_of: the dimensions of a value of the program, by its name.
        axes: axes by name (live: axes found later are seen).
        last: numbers read from tensors that are the highest position along an axis (live): ``i4`` -> the axis.
        counted: numbers read from tensors that are the rows of an axis (live). Where a shape is asked for they are plain
            numbers: only guards are told.
    """

    def __init__(
        self,
        dims_of: Callable[[str], Dims],
        axes: Mapping[str, Axis],
        last: Mapping[str, str] | None = None,
        counted: Mapping[str, str] | None = None,
    ) -> None:
        self._dims_of = dims_of
        self._axes = axes
        self._last = {} if last is None else last
        self._counted = {} if counted is None else counted

    def sizes(self, text: str) -> dict[str, tuple[str, tuple[Dim, ...]]]:
        """The sizes in an expression: text -> (value, the dimensions that are counted)."""
        found: dict[str, tuple[str, tuple[Dim, ...]]] = {}
        for match in _SIZE.finditer(text):
            short, dim, elements, long, long_dim, long_elements = match.groups()
            value = f"v{short or elements or long or long_elements}"
            dims = self._dims_of(value)
            position = dim or long_dim
            found[match[0]] = (value, (dims[int(position)],) if position else dims)
        return found

    def polynomial(self, number: Any, *, guard: bool = False) -> Polynomial | None:
        """The number as a polynomial in axis rows; None when it is something else. ``guard``: for a test, see ``counted``."""
        if isinstance(number, bool):
            return None
        if isinstance(number, int | float):
            return Polynomial.of(number)
        if not isinstance(number, Expression):
            return None
        text = number.text
        known: dict[str, Polynomial] = {}
        for index, (name, (_, dims)) in enumerate(self.sizes(text).items()):
            total = Polynomial.of(1)
            for dim in dims:
                total = total * self._rows_of(dim)
            known[f"size{index}"] = total
            text = re.sub(rf"{re.escape(name)}(?!\d)", f"size{index}", text)
        for name, axis in self._last.items():
            known[name] = Polynomial.of(1, axis) + -1.0
        for name, axis in self._counted.items() if guard else ():
            if axis in self._axes:
                known[name] = Polynomial.of(1, axis)
        try:
            tree = ast.parse(text, mode="eval")
        except SyntaxError:
            return None
        return _walk(tree.body, known)

    def dim(self, number: Any) -> Dim | None:
        """The dimension that a shape argument asks for: an axis, a fixed size, or None when it is neither."""
        total = self.polynomial(number)
        if total is None:
            return None
        if not total.terms:
            return 0
        if len(total.terms) > 1:
            return self._joined(total)
        coefficient, symbols = total.terms[0]
        if not symbols:
            return int(coefficient) if coefficient == int(coefficient) else None
        if len(symbols) > 1:
            return None
        blocks = f"{symbols[0]}*{coefficient:g}"
        return symbols[0] if coefficient == 1 else blocks if blocks in self._axes else None

    def counted(self, number: Any) -> Counter[str] | None:
        """The base axes whose rows a number is the sum of, each as often as it counts; None when it is something else."""
        total = self.polynomial(number)
        return None if total is None else self._summands(total)

    def _summands(self, total: Polynomial) -> Counter[str] | None:
        found: Counter[str] = Counter()
        for coefficient, symbols in total.terms:
            if len(symbols) != 1 or coefficient < 0 or coefficient != int(coefficient):
                return None
            for axis in parts_of(self._axes, symbols[0]):
                found[axis] += int(coefficient)
        return found

    def _joined(self, total: Polynomial) -> str | None:
        """The one axis that joins the axes whose rows a number is the sum of."""
        wanted = self._summands(total)
        found = [
            name
            for name, axis in self._axes.items()
            if axis.kind == "concat" and Counter(parts_of(self._axes, name)) == wanted
        ]
        return found[0] if len(found) == 1 else None

    def _rows_of(self, dim: Dim) -> Polynomial:
        """The size of a dimension; heads are counted by the rows that have them."""
        if isinstance(dim, int):
            return Polynomial.of(dim)
        axis = self._axes[dim]
        if axis.kind == "blocks":
            return Polynomial.of(axis.width, axis.parts[0])
        return Polynomial.of(1, dim)

    def always(self, test: str, expected: Any) -> bool:
        """Whether a guard on sizes holds for every graph: ``test`` then evaluates to ``expected``."""
        try:
            tree = ast.parse(test, mode="eval").body
        except SyntaxError:
            return False
        if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "bool" and len(tree.args) == 1:
            tree = tree.args[0]
        if not isinstance(expected, bool):
            difference = self._minus(test, repr(expected))
            return difference is not None and not difference.terms
        if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
            return False
        difference = self._minus(ast.unparse(tree.left), ast.unparse(tree.comparators[0]))
        if difference is None:
            return False
        return _compare(tree.ops[0], difference, self._axes) is expected

    def _minus(self, left: str, right: str) -> Polynomial | None:
        a = self.polynomial(Expression(left), guard=True)
        b = self.polynomial(Expression(right), guard=True)
        return None if a is None or b is None else a + b * -1


def _walk(tree: ast.expr, known: Mapping[str, Polynomial]) -> Polynomial | None:
    if (
        isinstance(tree, ast.Constant)
        and isinstance(tree.value, int | float)
        and not isinstance(tree.value, bool)
    ):
        return Polynomial.of(tree.value)
    if isinstance(tree, ast.Name):
        return known.get(tree.id)
    if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "int" and len(tree.args) == 1:
        value = _walk(tree.args[0], known)
        whole = value is not None and all(float(c).is_integer() for c, _ in value.terms)
        return value if whole else None
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        value = _walk(tree.operand, known)
        return None if value is None else value * -1
    if isinstance(tree, ast.BinOp):
        left, right = _walk(tree.left, known), _walk(tree.right, known)
        if left is None or right is None:
            return None
        if isinstance(tree.op, ast.Add):
            return left + right
        if isinstance(tree.op, ast.Sub):
            return left + right * -1
        if isinstance(tree.op, ast.Mult):
            return left * right
        if isinstance(tree.op, ast.FloorDiv) and right == Polynomial.of(1):
            return left
    return None


def _compare(operator: ast.cmpop, difference: Polynomial, axes: Mapping[str, Axis]) -> bool | None:
    """The outcome of ``difference OPERATOR 0`` where it is the same for every graph, else None."""
    least = _least(difference, axes)
    most = _least(difference * -1, axes)
    low = least if least is not None else float("-inf")
    high = -most if most is not None else float("inf")
    if isinstance(operator, ast.NotEq):
        equal = _compare(ast.Eq(), difference, axes)
        return None if equal is None else not equal
    if isinstance(operator, ast.Eq):
        if low == high == 0:
            return True
        return False if low > 0 or high < 0 else None
    if isinstance(operator, ast.Lt):
        return True if high < 0 else False if low >= 0 else None
    if isinstance(operator, ast.LtE):
        return True if high <= 0 else False if low > 0 else None
    if isinstance(operator, ast.Gt):
        return True if low > 0 else False if high <= 0 else None
    if isinstance(operator, ast.GtE):
        return True if low >= 0 else False if high < 0 else None
    return None


def _least(total: Polynomial, axes: Mapping[str, Axis]) -> float | None:
    """A lower bound: base axes have a row or more, a ``select`` axis from none to all of its parent's; None: no bound."""
    expanded = Polynomial()
    for coefficient, symbols in total.terms:
        term = Polynomial.of(coefficient)
        for symbol in symbols:
            term = term * _rows(symbol, coefficient > 0, axes)
        expanded = expanded + term
    if any(coefficient < 0 and symbols for coefficient, symbols in expanded.terms):
        return None
    return sum(coefficient for coefficient, _ in expanded.terms)


def _rows(symbol: str, least: bool, axes: Mapping[str, Axis]) -> Polynomial:
    """The fewest or the most rows of an axis, in base axes."""
    axis = axes[symbol]
    if axis.kind == "concat":
        total = Polynomial()
        for part in axis.parts:
            total = total + _rows(part, least, axes)
        return total
    if axis.kind == "blocks":
        return _rows(axis.parts[0], least, axes) * axis.width
    if axis.kind == "select":
        return Polynomial() if least else _rows(axis.parts[0], least, axes)
    if axis.kind == "other":
        return Polynomial() if least else Polynomial.of(1, symbol)
    return Polynomial.of(1, symbol)
