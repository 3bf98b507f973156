"""The longest chain of dependent operations through a program, forward and backward. No torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autoplan.opgraph import OpGraph


class CriticalPath:
    """Depth of any of a program's ops together: only what a tensor or a number joins must run one after the other.

    Args:
        graph: the program.
        forward: by op index, its own depth; an op that is not in it counts nothing, but joins others.
        backward: the same of those that a gradient passes.
        towards: of these, by input the depth of its gradient where it is less (`Work.towards`).
    """

    def __init__(
        self,
        graph: OpGraph,
        forward: Mapping[int, float],
        backward: Mapping[int, float],
        towards: Mapping[int, Mapping[str, float]],
    ) -> None:
        self.forward_depths = forward
        self.backward_depths = backward
        self.towards = towards
        self.maker: dict[str, int] = {}
        self.before: dict[int, tuple[int, ...]] = {}
        for op in graph.ops:
            made_by = [self.maker[name] for name in op.inputs if name in self.maker]
            self.before[op.index] = tuple(dict.fromkeys([*made_by, *op.numbers]))
            self.maker.update((name, op.index) for name in op.outputs)
        self.differentiated = {op.index: op.differentiates for op in graph.ops}

    def forward(self, chosen: Collection[int]) -> float:
        """Depth of the chosen ops; others on the way count nothing, but join them."""
        reached: dict[int, float] = {}
        for index, before in self.before.items():
            own = self.forward_depths.get(index, 0.0) if index in chosen else 0.0
            reached[index] = own + max((reached.get(other, 0.0) for other in before), default=0.0)
        return max((reached[index] for index in chosen), default=0.0)

    def backward(self, chosen: Collection[int]) -> float:
        """The same along gradients, which pass from an op to the makers of the inputs that it differentiates."""
        arriving: dict[int, float] = {}
        deepest = 0.0
        for index in reversed(self.before):
            if index not in self.backward_depths:
                continue
            arrived = arriving.get(index, 0.0)
            own = self.backward_depths[index]
            shorter = self.towards.get(index, {})
            if index in chosen:
                deepest = max(deepest, arrived + own)
            for name in self.differentiated[index]:
                if name in self.maker:
                    other = self.maker[name]
                    step = shorter.get(name, own) if index in chosen else 0.0
                    arriving[other] = max(arriving.get(other, 0.0), arrived + step)
        return deepest
