"""Modes that surround a pass: the ones a program was recorded in, and the portable kernels it was recorded with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from autoplan.program.torch_internals import is_autocast_enabled


@dataclass(frozen=True, slots=True)
class Modes:
    """Modes that change what a forward pass computes.

    Attributes:
        grad: gradients are being recorded; autocast: for CPU and for CUDA; default_dtype: of new tensors.
    """

    grad: bool
    autocast: tuple[bool, ...]
    default_dtype: torch.dtype

    @classmethod
    def current(cls) -> Modes:
        """The modes in force now."""
        return cls(torch.is_grad_enabled(), is_autocast_enabled(), torch.get_default_dtype())


def training_modes(module: torch.nn.Module) -> dict[str, bool]:
    """``training`` of each submodule by its path; the root's path is empty."""
    return {path: submodule.training for path, submodule in module.named_modules()}


@contextmanager
def portable() -> Iterator[None]:
    """Kernels that exist for every dtype and device: no mkldnn, attention spelled out, nothing compiled."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    kernels: Any = torch.backends.mkldnn  # `flags()` would warn about TF32 on machines without it
    mkldnn = kernels.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    kernels.enabled = False
    try:
        with (
            torch.compiler.set_stance("force_eager"),
            sdpa_kernel(SDPBackend.MATH),
        ):
            yield
    finally:
        kernels.enabled = mkldnn
        torch.backends.mha.set_fastpath_enabled(fast_path)
