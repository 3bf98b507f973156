"""Private names of torch stay in one adapter, and the adapter does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from autoplan.program.torch_internals import (
    operator,
    operator_name,
    output_size_follows_content,
    storage_id,
    written_arguments,
)

_PRIVATE = re.compile(
    r"\btorch(?:\.\w+)*\._(?!_)\w|\b_pytree\b|\b_python_dispatch\b|\b_functorch\b|\bfunc\._schema\b|"
    r"\._(?:op|parameters|buffers|nnz|cdata|backward_hooks)\b"
)


def test_no_private_name_of_torch_elsewhere(repository: Path) -> None:
    found = [
        f"{file.relative_to(repository)}:{number}: {line.strip()}"
        for folder in ("autoplan", "plugins")
        for file in sorted((repository / folder).rglob("*.py"))
        if file.name != "torch_internals.py"
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if _PRIVATE.search(line.replace("self._op(", ""))
    ]
    assert found == []


def test_operators_by_name() -> None:
    name = operator_name(torch.ops.aten.add.Tensor)
    assert name == "aten.add.Tensor"
    assert operator(name)(torch.ones(1), 2).item() == 3
    assert operator_name(torch.add) is None


def test_what_an_operator_writes() -> None:
    assert written_arguments(torch.ops.aten.add_.Tensor)[:2] == (True, False)
    assert not any(written_arguments(torch.ops.aten.add.Tensor))
    assert written_arguments(torch.relu) == ()


def test_shapes_that_follow_content() -> None:
    assert output_size_follows_content(torch.ops.aten.nonzero.default)
    assert not output_size_follows_content(torch.ops.aten.mm.default)


def test_views_share_their_storage() -> None:
    x = torch.ones(2, 3)
    assert storage_id(x) == storage_id(x.t())
    assert storage_id(x) != storage_id(x.clone())
