"""The hooks that a plugin may implement. Each yields data; the host decides what to do with it.

A plugin is a module named by an entry point of group ``autoplan``:

    [project.entry-points.autoplan]
    acme = "autoplan_acme"

A hook that raises, or yields what `autoplan.profiles.check_profile` refuses, costs that plugin its place and no one else's.
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from autoplan.cost import CostModel
from autoplan.device import DeviceProfile

PROJECT = "autoplan"
"""The name of the entry-point group and of pluggy's project."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def autoplan_devices() -> Iterable[DeviceProfile]:
    """Yields the devices that the plugin knows.

    Numbers that are not known are left out; each number's origin goes into ``figures``. A complete plugin:

        import autoplan
        from autoplan.device import DeviceProfile, Figure

        DATASHEET = "https://acme.example/npu2.pdf"

        @autoplan.hookimpl
        def autoplan_devices():
            yield DeviceProfile(
                name="acme_npu2",
                kind="npu",
                title="Acme NPU 2",
                vendor="Acme",
                flop_per_s={"float32": 50e12, "bfloat16": 200e12},
                memory_bytes=32 * 2**30,
                bytes_per_s=1.2e12,
                launch_seconds=5e-6,
                torch_device=None,  # torch cannot run it: for planning only
                figures={
                    "flop_per_s.float32": Figure(50e12, "datasheet", DATASHEET),
                    "flop_per_s.bfloat16": Figure(200e12, "datasheet", DATASHEET),
                    "memory_bytes": Figure(32 * 2**30, "datasheet", DATASHEET),
                    "bytes_per_s": Figure(1.2e12, "datasheet", DATASHEET),
                    "launch_seconds": Figure(5e-6, "assumed", "", "no source found"),
                },
            )

    `autoplan.profiles.read_profiles` reads the same from a TOML file.
    """
    raise NotImplementedError("a specification; plugins implement it")


@hookspec
def autoplan_cost_models() -> Iterable[CostModel]:
    """Yields cost models. For each op and device the highest ``accuracy`` wins; one that fails falls through.

    A complete plugin:

        import autoplan
        from autoplan.cost import Cost

        class AcmeGather:
            name = "acme-gather"

            def accuracy(self, work, profile):
                return 0.8 if profile.name == "acme_npu2" and work.kind == "gather" else None

            def estimate(self, work, profile):
                moved = work.bytes_read + work.bytes_written
                seconds = 4e-6 + moved / 0.6e12  # fitted to 500 measured shapes, off by up to 15 %
                return Cost(seconds=seconds, bytes=moved, low=0.85 * seconds, high=1.15 * seconds)

        @autoplan.hookimpl
        def autoplan_cost_models():
            yield AcmeGather()
    """
    raise NotImplementedError("a specification; plugins implement it")
