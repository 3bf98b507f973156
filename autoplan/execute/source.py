"""Lines of generated Python: variables of tensors in a state, each freed after its last use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from autoplan.opgraph import State

_VARIABLE = re.compile(r"\b(?:v\d+(?:_\d+)?_[ROHS]|keys_\w+)\b")


def variable(tensor: str, state: State) -> str:
    """``v5_1_O`` for tensor ``v5.1`` in state O."""
    return f"{tensor.replace('.', '_')}_{state}"


def axis_text(axis: str) -> str:
    """An axis name as a part of an identifier: ``select_v12`` for ``select(v12)``."""
    return re.sub(r"\W+", "_", axis).strip("_")


@dataclass(slots=True)
class Line:
    """One statement; ``grad`` is the grad mode that it must run in, None where it does not matter.

    ``after`` holds statements that were found later and belong right behind it.
    """

    text: str
    grad: bool | None = None
    after: list[Line] = field(default_factory=list)


@dataclass(slots=True)
class Body:
    """The statements of a function, in order.

    Attributes:
        prologue: what comes first: sizes and inputs.
        lines: the steps.
        source_of: by variable, the line that defines it.
    """

    prologue: list[Line] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    source_of: dict[str, Line] = field(default_factory=dict)

    def add(self, text: str, *defines: str, grad: bool | None = None) -> None:
        """Appends a statement that assigns the variables ``defines``."""
        self._put(self.lines, text, defines, grad)

    def add_first(self, text: str, *defines: str) -> None:
        """Appends a statement to the prologue."""
        self._put(self.prologue, text, defines, None)

    def add_after(self, name: str, text: str) -> None:
        """Puts a statement right behind the one that defines variable ``name``."""
        self.source_of[name].after.append(Line(text))

    def _put(self, lines: list[Line], text: str, defines: Sequence[str], grad: bool | None) -> None:
        line = Line(text, grad)
        lines.append(line)
        for name in defines:
            self.source_of[name] = line

    def render(self, header: str, result: str, grad: bool) -> str:
        """The function's source.

        Args:
            header: the ``def`` line.
            result: the expression that is returned.
            grad: the grad mode that it starts in.
        """
        flat = list(_flat([*self.prologue, *self.lines]))
        kept = self._variables(result)
        text: list[str] = []
        last_use: list[list[str]] = []
        for line in reversed(flat):
            dead = [name for name in self._variables(line.text) if name not in kept]
            kept.update(dict.fromkeys(dead))
            last_use.append(dead)
        mode = grad
        text.append(f"torch.set_grad_enabled({grad})")
        for line, dead in zip(flat, reversed(last_use), strict=True):
            if line.grad is not None and line.grad != mode:
                mode = line.grad
                text.append(f"torch.set_grad_enabled({mode})")
            text.append(line.text)
            if dead:
                text.append(f"del {', '.join(dead)}")
        text.append(f"return {result}")
        return header + "\n    " + "\n    ".join(text) + "\n"

    def _variables(self, text: str) -> dict[str, None]:
        """The variables that a statement names, once each, in order."""
        found = _VARIABLE.findall(text)
        return dict.fromkeys(name for name in found if name in self.source_of)


def _flat(lines: Sequence[Line]) -> list[Line]:
    flat: list[Line] = []
    for line in lines:
        flat.append(line)
        flat.extend(_flat(line.after))
    return flat
