"""Long names in narrow columns: paths of modules and relations break where their parts meet, never in a word. No torch."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment

_PIECE = re.compile(r".+?(?:\.|_{2,}|$)")
"""Up to a point or two or more underscores, which stay at the end of their line."""
_WORD = re.compile(r".+?(?:_|$)")
"""The same with one underscore, for pieces that are too long."""


def broken(name: str, width: int) -> list[str]:
    """A name on lines of at most so many columns: broken after points and double underscores.

    What is longer breaks after an underscore, and a word that is longer still, in itself.
    """
    lines = [""]
    pieces = [
        part
        for piece in _PIECE.findall(name)
        for part in ([piece] if len(piece) <= width else _WORD.findall(piece))
    ]
    for piece in pieces:
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1]) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return lines


class Name:
    """A cell: a name that may break, and lines below it that break between words.

    Args:
        name: a path, ``convs.0.author__writes__paper``.
        below: what is said of it.
        width: of the column at least.
    """

    def __init__(self, name: str, below: Sequence[str] = (), *, width: int = 0) -> None:
        self.name = name
        self.below = tuple(below)
        self.width = width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's protocol: lines as wide as the column."""
        for line in self._lines(max(1, options.max_width)):
            yield Segment(line)
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Rich's protocol: the widest piece, and the whole name."""
        pieces = [*map(len, _PIECE.findall(self.name)), self.width]
        whole = max(len(self.name), *map(len, self.below), *pieces)
        most = options.max_width
        return Measurement(min(max(pieces), most), min(whole, most))

    def _lines(self, width: int) -> Iterator[str]:
        yield from broken(self.name, width)
        for line in self.below:
            inner = len(line) - len(line.lstrip())
            yield from textwrap.wrap(line, width, subsequent_indent=" " * inner) or [""]
