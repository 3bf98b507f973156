"""What of a cluster is in this machine. torch is imported only to ask which CUDA devices there are."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoplan.device import Cluster, Device, DeviceProfile
from autoplan.errors import DeviceError
from autoplan.plugins import registry

_DRIVERS = ("proc/driver/nvidia", "dev/nvidiactl", "dev/kfd", "dev/dxg")
"""Of NVIDIA, AMD and Windows' Linux: without any of these, torch sees no CUDA or ROCm device."""
_ASK = """
import dataclasses, json
from autoplan.presence import cuda_devices
print(json.dumps([dataclasses.asdict(each) for each in cuda_devices()]))
"""
_ASK_SECONDS = 120

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A CUDA (or ROCm) device as torch sees it: its index, its title (``NVIDIA H200``) and all its memory."""

    index: int
    title: str
    memory_bytes: int


def cuda_devices() -> tuple[CudaDevice, ...]:
    """The CUDA devices that torch sees here, in torch's order; none where torch or a driver is missing."""
    try:
        import torch
    except ImportError:
        return ()
    if not torch.cuda.is_available():
        return ()
    found = (torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count()))
    return tuple(CudaDevice(i, each.name, each.total_memory) for i, each in enumerate(found))


def cuda_devices_apart(root: Path = Path("/")) -> tuple[CudaDevice, ...]:
    """`cuda_devices` as a Python of its own sees them: this process imports no torch and starts no driver.

    At once where the machine has no driver; else it takes the seconds that importing torch takes. None where asking fails,
    which is logged.
    """
    if not any((root / driver).exists() for driver in _DRIVERS):
        return ()
    command = [sys.executable, "-P", "-c", _ASK]
    try:
        asked = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_ASK_SECONDS
        )
        # The last line: libraries may greet before.
        answer = json.loads(asked.stdout.strip().rpartition("\n")[2])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        _logger.warning("cannot ask torch which CUDA devices are here: %s", error)
        return ()
    return tuple(CudaDevice(**each) for each in answer)


def processor_title(root: Path = Path("/")) -> str:
    """The processor's name as Linux gives it; empty elsewhere."""
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return ""


def require_present(cluster: Cluster) -> None:
    """Checks that workers for all the cluster's devices can be started here.

    Raises:
        DeviceError: several hosts, a device that torch cannot run, or one that is not in this machine.
    """
    hosts = {device.host for device in cluster.devices}
    if len(hosts) > 1:
        raise DeviceError(
            f"{cluster.text or 'the cluster'} spans {len(hosts)} hosts and only this one is here; "
            f"start the plan with torchrun on each host"
        )
    for device in cluster.devices:
        problem = _absence(device)
        if problem:
            raise DeviceError(
                f"{device.name} ({device.profile.title}) is for planning only here: {problem}; "
                f"run the plan where it is, or plan for devices of this machine, such as 2xcpu"
            )


def runs_here(profile: DeviceProfile, cuda: Iterable[CudaDevice]) -> bool:
    """Whether torch can run workers on such a device of this machine, which has these CUDA devices."""
    if profile.torch_device == "cpu":
        return _is(profile, processor_title(), "cpu")
    return profile.torch_device == "cuda" and any(_is(profile, each.title, "cuda") for each in cuda)


def _is(profile: DeviceProfile, title: str, generic: str) -> bool:
    """Whether a profile describes what the system calls by a title; the generic one describes anything."""
    known = registry().find(title) if title else None
    return profile.name == generic or (known is not None and known.name == profile.name)


def _absence(device: Device) -> str | None:
    """Why a device cannot run a worker on this machine, or None."""
    profile = device.profile
    if profile.torch_device is None:
        return f"autoplan cannot run workers on devices of kind '{profile.kind}'"
    if profile.torch_device == "cpu":
        title = processor_title()
        if _is(profile, title, "cpu"):
            return None
        return f"this machine's processor is {title or 'unknown'}"
    here = cuda_devices()
    if device.index >= len(here):
        return f"this machine has {list_cuda(here)}"
    title = here[device.index].title
    if _is(profile, title, "cuda"):
        return None
    return f"cuda:{device.index} is {title}"


def list_cuda(here: Sequence[CudaDevice]) -> str:
    """For messages: the CUDA devices of this machine."""
    if not here:
        return "no CUDA device that torch can see"
    return ", ".join(f"cuda:{each.index} ({each.title})" for each in here)
