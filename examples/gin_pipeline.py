"""A GIN in two stages on two workers: micro-batches of whole graphs flow through them; nothing is downloaded.

Run it, or hand ``build`` to the command line. It trains to the numbers of one process, which `autoplan.verify` and the last
line show.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, JumpingKnowledge, global_add_pool

import autoplan
from autoplan.datasets import rings_and_trees
from autoplan.search import SearchOptions


class GIN(nn.Module):
    """Three layers with jumping knowledge: what every layer gives crosses the cut."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        widths = (features, hidden, hidden)
        self.layers = nn.ModuleList(GINConv(_perceptron(width, hidden)) for width in widths)
        self.jump = JumpingKnowledge("cat")
        self.out = nn.Linear(3 * hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Logits [B, classes] of the B graphs that ``batch`` [N] tells apart."""
        found = []
        for layer in self.layers:
            x = layer(x, edge_index).relu()
            found.append(x)
        logits: Tensor = self.out(global_add_pool(self.jump(found), batch))
        return logits


def _perceptron(first: int, second: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(first, second), nn.ReLU(), nn.Linear(second, second))


def build() -> tuple[GIN, list[Data]]:
    """The model and the graphs; the loss is the default: cross-entropy with ``y``."""
    torch.manual_seed(0)
    return GIN(1, 16, 2), rings_and_trees(96)


def main(epochs: int = 10) -> None:
    """Plans a pipeline, shows its stages, verifies and trains it, and compares with one process."""
    model, graphs = build()
    plan = autoplan.optimize(
        model,
        graphs,
        "2xcpu",
        batch_size=32,
        strategy="pipeline",
        options=SearchOptions(micro_batches=(4,), schedules=("1f1b",)),
    )
    print(plan.explain())
    print(autoplan.verify(plan, model, graphs))

    together = plan.train(model, graphs, epochs=epochs, lr=0.01, seed=0)
    single = autoplan.optimize(model, graphs, "cpu", batch_size=32)
    alone = single.train(*build(), epochs=epochs, lr=0.01, seed=0)
    apart = max(abs(a - b) for a, b in zip(together.losses, alone.losses, strict=True))
    print(f"{len(together.losses)} steps, last loss {together.losses[-1]:.4f} in a pipeline,")
    print(f"{alone.losses[-1]:.4f} in one process; losses differ by {apart:.1e} at most")


if __name__ == "__main__":
    main()
