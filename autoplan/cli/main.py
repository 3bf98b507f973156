"""The command `autoplan`: puts the commands together and turns errors into messages and exit codes."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="autoplan",
    help="Plan how a PyTorch Geometric model and graph are spread over devices, run the plan, and prove it exact.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _group() -> None:
    """Keeps typer from flattening the commands."""


def main() -> None:
    """Entry point of the console script."""
    app()
