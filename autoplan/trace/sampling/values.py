"""The attributes of a sample: rows of the graph's own, and positions along the sample's axes (torch)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from autoplan.opgraph import GRAPH
from autoplan.trace.attributes import AttributeSpec
from autoplan.trace.sampling.edges import Pairs
from autoplan.trace.sampling.nodes import ChosenNodes
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import NUM_NODES


class Values:
    """The attributes of one sample."""

    def __init__(
        self,
        schema: GraphSchema,
        picked: Mapping[str, Tensor],
        nodes: ChosenNodes,
        pairs: Mapping[str, Pairs],
        wanted: Mapping[str, int],
        generator: torch.Generator,
    ) -> None:
        """``picked``: by axis, the graph's row that each of the sample's rows is."""
        self._schema, self._picked, self._nodes = schema, picked, nodes
        self._pairs, self._wanted, self._generator = pairs, wanted, generator

    def of(self, spec: AttributeSpec, original: Tensor) -> Tensor:
        """An attribute of the sample, on the CPU."""
        value = self._value(spec, original).cpu()
        return value.requires_grad_(original.requires_grad)

    def _value(self, spec: AttributeSpec, original: Tensor) -> Tensor:
        if spec.attribute == NUM_NODES:
            return torch.ones(self._picked[spec.axes[0]].numel(), dtype=torch.bool)
        if spec.index is not None:
            return self._positions(spec).to(original.dtype)
        value = original.detach().clone() if not spec.axes else original.detach()
        for dimension, axis in enumerate(spec.dims):
            if isinstance(axis, str):
                value = self._take(value, dimension, self._picked[axis])
        if spec.dtype == "bool" and spec.dims and isinstance(spec.dims[0], str):
            value = self._some_true(spec, value)
        return value.contiguous()

    def _positions(self, spec: AttributeSpec) -> Tensor:
        """Positions along the sample's axes: pairs, graphs of nodes, lists."""
        assert spec.index is not None
        if spec.axes[0] in self._pairs:
            own = self._pairs[spec.axes[0]]
            return torch.from_numpy(np.stack([own.source, own.target]))
        if spec.index.axes == (GRAPH,):
            return self._nodes.copy_of[spec.axes[0]]
        return self._nodes.places[spec.axes[0]]

    def _take(self, value: Tensor, dimension: int, picked: Tensor) -> Tensor:
        if value.size(dimension):
            return value.index_select(dimension, picked.to(value.device))
        shape = (*value.shape[:dimension], picked.numel(), *value.shape[dimension + 1 :])
        if value.is_floating_point():
            return torch.randn(shape, generator=self._generator).to(value.dtype)
        return torch.zeros(shape, dtype=value.dtype)

    def _some_true(self, spec: AttributeSpec, value: Tensor) -> Tensor:
        """The mask with the wished number of True rows where there are more; never all or none of them True."""
        value = value.clone()
        rows = value.view(value.size(0), -1)
        wanted = self._wanted.get(spec.name, max(1, value.size(0) // 2))
        for column in range(rows.size(1)):
            true = rows[:, column].nonzero().view(-1)
            if column == 0 or true.numel() == value.size(0):
                rows[true[wanted:], column] = False
            if not true.numel():
                rows[: min(wanted, value.size(0) - 1), column] = True
        return value
