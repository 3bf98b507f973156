"""What to do about models that were not made, or cannot be made, for graphs of several types."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import nn
from torch.fx import GraphModule

_POOL = re.compile(r"global_\w+_pool")


def pooling_in(error: BaseException) -> str | None:
    """The readout of PyG (``global_mean_pool``) in which an error was raised; None where there is none."""
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if _POOL.fullmatch(code.co_name):
            return code.co_name
        traceback = traceback.tb_next
    return None


def pooling_advice(function: str) -> str:
    """That a readout belongs outside of a converted model."""
    return (
        f"{function} reads out whole graphs, which to_hetero cannot convert: pool per node type outside of the converted "
        f"model, for each node type kind {function}(out[kind], graph[kind].batch)"
    )


def conversion_remedy(error: BaseException, model: nn.Module, by_type: Sequence[str]) -> str:
    """A clause for a model that fails on a graph of several types, or nothing.

    Args:
        error: what forward raised.
        model: the model.
        by_type: arguments that got an attribute of every type though their names do not end in ``_dict``.
    """
    function = pooling_in(error)
    if isinstance(model, GraphModule):
        return f"; {pooling_advice(function)}" if function else ""
    if not by_type:
        return ""
    names = " and ".join(f"{name!r}" for name in by_type)
    advice = (
        f"; the graph has several node types, so {names} came as dicts by type: convert the model with "
        "torch_geometric.nn.to_hetero(model, graph.metadata())"
    )
    function = function or _pooling_of(model)
    return f"{advice}; but {pooling_advice(function)}" if function else advice


def _pooling_of(model: nn.Module) -> str | None:
    """A readout function that some forward of the model names."""
    for module in model.modules():
        code = getattr(type(module).forward, "__code__", None)
        for name in code.co_names if code is not None else ():
            if _POOL.fullmatch(name):
                return str(name)
    return None
