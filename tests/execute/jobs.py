"""A small hand-written rank program, its graph and jobs made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from autoplan.execute.job import RankData, TrainJob
from autoplan.execute.optimizers import OptimizerSpec
from autoplan.partition.halo import build_shards
from autoplan.program.rank_program import RankInput, RankOutput, RankProgram

NODES, EDGES, FEATURES, HIDDEN = 12, 40, 5, 3

_FORWARD = """\
    x, edge_index = inputs["x", "O"], inputs["edge_index", "O"]
    h = x @ parameters["conv.lin.weight"].t()
    read = exchange.halo_exchange(context, h, "node")
    out = torch.zeros_like(h).index_add(0, edge_index[1], read.index_select(0, edge_index[0]))
    out = (out + parameters["conv.bias"]) * parameters["scale"]
"""
_TRAIN = (
    "def step(context, parameters, buffers, inputs, capture, received):\n"
    "    {extra}\n" + _FORWARD + "    buffers['steps'].add_(1)\n"
    "    loss = exchange.all_reduce(context, (out - 1).pow(2).sum()) / context.rows('node', 'R')\n"
    "    return [loss, out]\n"
)
_EVALUATE = (
    "def step(context, parameters, buffers, inputs, capture, received):\n"
    + _FORWARD
    + "    return [out, exchange.all_reduce(context, out.sum())]\n"
)


@dataclass(frozen=True)
class HandWritten:
    """A job and the parts of its graph for some number of ranks."""

    job: TrainJob
    parts: list[RankData]
    halo_rows: list[int] = field(default_factory=list)
    sent_rows: list[int] = field(default_factory=list)


def make(workers: int, *, extra: str = "pass", epochs: int = 6, **changes: Any) -> HandWritten:
    """One graph convolution with a bias; ``extra`` is a statement that each training step starts with."""
    random = np.random.default_rng(0)
    edges = random.integers(0, NODES, (2, EDGES))
    x = torch.tensor(random.standard_normal((NODES, FEATURES)))
    owner = np.arange(NODES) * 7 % 12 * workers // NODES
    shards = build_shards(owner, {"edge": edges}, {}, parts=workers)
    parts = [
        RankData(
            shard,
            {
                ("x", "O"): x[torch.tensor(shard.nodes["node"].owned)],
                ("edge_index", "O"): torch.tensor(shard.edge_index["edge"]),
            },
        )
        for shard in shards
    ]
    settings: dict[str, Any] = {
        "optimizer": OptimizerSpec("adam", {"lr": 0.05}),
        "evaluation": program(_EVALUATE, has_loss=False),
        "metrics": {"total": 1},
        "default_dtype": torch.float64,
    }
    job = TrainJob(
        program=program(_TRAIN.format(extra=extra), has_loss=True),
        parameters=parameters(),
        buffers={"steps": torch.tensor(0)},
        epochs=epochs,
        **(settings | changes),
    )
    return HandWritten(
        job,
        parts,
        halo_rows=[len(shard.nodes["node"].halo) for shard in shards],
        sent_rows=[len(shard.nodes["node"].send_rows) for shard in shards],
    )


def parameters() -> Mapping[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "conv.lin.weight": torch.randn(HIDDEN, FEATURES, generator=generator, dtype=torch.float64),
        "conv.bias": torch.zeros(HIDDEN, dtype=torch.float64),
        # read, but frozen
        "scale": torch.ones(1, dtype=torch.float64),
    }


def program(source: str, *, has_loss: bool) -> RankProgram:
    return RankProgram(
        source=source,
        operators={},
        objects={},
        inputs=(
            RankInput("x", "O", 0, "node", None),
            RankInput("edge_index", "O", 1, "edge", None),
        ),
        parameters=("conv.lin.weight", "conv.bias", "scale"),
        buffers=("steps",) if has_loss else (),
        written=("steps",) if has_loss else (),
        trained=("conv.lin.weight", "conv.bias") if has_loss else (),
        outputs=(RankOutput("loss", "R", None, None),),
        transitions=(),
        gathered=(),
        has_loss=has_loss,
    )


def planned_bytes(made: HandWritten) -> list[int]:
    """By hand: halo exchange and its adjoint, the loss forward and backward, and the gradients."""
    row, scalar = HIDDEN * 8, 8
    gradients = (HIDDEN * FEATURES + HIDDEN) * 8
    return [
        (sent + halo) * row + 2 * scalar + gradients
        for sent, halo in zip(made.sent_rows, made.halo_rows, strict=True)
    ]
