"""What the commands print, and where: results on stdout, everything else on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping

import typer


def result(text: str) -> None:
    """Writes a result to stdout."""
    typer.echo(text, nl=not text.endswith("\n"))


def document(content: Mapping[str, object]) -> None:
    """Writes the one JSON document of a command under ``--json`` to stdout. Raises ValueError for NaN."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


def say(text: str) -> None:
    """Tells what is going on, on stderr."""
    typer.echo(text, err=True)


@contextlib.contextmanager
def clean_stdout() -> Iterator[None]:
    """While it lasts, what anything prints to stdout goes to stderr.

    Covers Python's ``print`` in the user's file and what libraries (solvers) write to the file descriptor, so that
    stdout carries the command's result alone.
    """
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
