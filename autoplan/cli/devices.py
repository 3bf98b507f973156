"""`autoplan devices`: what can be planned for, what can be run here, and where each figure is from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autoplan.cli import options
from autoplan.cli.output import clean_stdout, document, result

if TYPE_CHECKING:
    from autoplan.report.devices import Listed


def devices(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A profile's name or alias: all its figures."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the device profiles; with NAME one of them, each figure with how it was obtained and its source."""
    from autoplan.report import devices as report

    with clean_stdout():
        listed = _all() if name is None else [_one(name)]
    if name is None:
        if as_json:
            document(report.devices_document(listed))
        else:
            result(report.devices_text(listed))
    elif as_json:
        document(report.device_document(listed[0]))
    else:
        result(report.device_text(listed[0]))


def _all() -> list[Listed]:
    from autoplan.plugins import registry
    from autoplan.presence import cuda_devices_apart, runs_here
    from autoplan.report.devices import Listed

    cuda = cuda_devices_apart()
    return [Listed(each, runs_here(each, cuda)) for each in registry().devices.values()]


def _one(name: str) -> Listed:
    """The profile of that name; ``cuda`` is the first CUDA device of this machine. Raises DeviceError for no such name."""
    from autoplan.devicestring import profile_named, profile_of_cuda
    from autoplan.plugins import registry
    from autoplan.presence import cuda_devices_apart, runs_here
    from autoplan.report.devices import Listed

    known = registry()
    if name == "cuda":
        here = cuda_devices_apart()
        return Listed(profile_of_cuda(0, here, known), here=True)
    profile = profile_named(name, known)
    cuda = cuda_devices_apart() if profile.torch_device == "cuda" else ()
    return Listed(profile, runs_here(profile, cuda))
