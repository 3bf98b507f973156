"""The command `autoplan`: puts the commands together and turns errors into messages and exit codes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from autoplan.cli.analyze import analyze
from autoplan.cli.demo import demo
from autoplan.cli.devices import devices
from autoplan.cli.diff import diff
from autoplan.cli.explain import explain
from autoplan.cli.interrupt import INTERRUPTED, interruptible, leave_at_once
from autoplan.cli.output import result, say
from autoplan.cli.plan import plan
from autoplan.cli.plugins import plugins
from autoplan.cli.rebind import rebind
from autoplan.cli.run import run
from autoplan.cli.show import show
from autoplan.cli.verify import verify
from autoplan.errors import AutoplanError, ExecutionError, InfeasibleError

FAILED = 1
"""Exit code: no plan, or a check that failed."""

BAD_INPUT = 2
"""Exit code: input that cannot be used; also typer's for options it does not know."""

app = typer.Typer(
    name="autoplan",
    help="Plan how a PyTorch Geometric model and graph are spread over devices, run the plan, and prove it exact.",
    epilog="Exit codes: 0 done, 1 no plan, a failed check or plans that differ, 2 bad input, 130 interrupted. Results go to stdout, the rest to stderr.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _help(command: Callable[..., None]) -> str:
    """A command's docstring with each paragraph on a line of its own: typer keeps the breaks of a source line."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


for command in (plan, analyze, explain, show, diff, rebind, run, verify, demo, devices, plugins):
    app.command(help=_help(command))(interruptible(command))


def _print_version(asked: bool) -> None:
    if asked:
        from autoplan.version import version

        result(f"autoplan {version()}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options before the command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script; always ends in SystemExit with the command's exit code."""
    try:
        app(args=arguments, prog_name="autoplan")
    except SystemExit as ended:
        if ended.code == INTERRUPTED and arguments is None:
            leave_at_once(INTERRUPTED)
        raise
    except AutoplanError as error:
        say(f"autoplan: {error}")
        if isinstance(error, ExecutionError) and error.worker_traceback:
            say(error.worker_traceback)
        failed = isinstance(error, InfeasibleError | ExecutionError)
        sys.exit(FAILED if failed else BAD_INPUT)
