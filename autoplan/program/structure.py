"""What a forward pass is given and returns: tensors and plain values in tuples, lists, dicts, slices and PyG data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def map_leaves(obj: Any, function: Callable[[Any, str], Any], path: str = "") -> Any:
    """``obj`` rebuilt with ``function(leaf, path)`` in place of each leaf.

    Named tuples keep their type; a list or tuple subclass that is no named tuple becomes a list. A PyG data object is
    copied with new stores.
    """
    if isinstance(obj, (list, tuple)):
        new = [map_leaves(item, function, f"{path}.{i}") for i, item in enumerate(obj)]
        if hasattr(obj, "_fields"):
            return type(obj)(*new)
        return type(obj)(new) if type(obj) in (tuple, torch.Size) else new
    if isinstance(obj, dict):
        return {key: map_leaves(item, function, f"{path}.{key}") for key, item in obj.items()}
    if isinstance(obj, slice):
        return slice(*(map_leaves(item, function) for item in (obj.start, obj.stop, obj.step)))
    if hasattr(obj, "stores") and hasattr(obj, "to_dict"):
        return _map_data(obj, function, path)
    return function(obj, path)


def _map_data(data: Any, function: Callable[[Any, str], Any], path: str) -> Any:
    new = copy.copy(data)
    for i, (store, new_store) in enumerate(zip(data.stores, new.stores, strict=True)):
        for key, item in store.items():
            new_store[key] = map_leaves(item, function, f"{path}.{i}.{key}")
    return new


def leaves(obj: Any) -> list[Any]:
    """The leaves of a structure, in order."""
    found: list[Any] = []

    def note(leaf: Any, _path: str) -> Any:
        found.append(leaf)
        return leaf

    map_leaves(obj, note)
    return found


def clone_tensors(obj: Any) -> Any:
    """The structure with each tensor cloned, a leaf of autograd as it was. One that is there twice becomes two."""

    def clone(leaf: Any, _path: str) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    return map_leaves(obj, clone)


def same(left: Any, right: Any) -> bool:
    """Equal in type and value; tensors in shape, dtype and every element; NaN equals NaN."""
    if isinstance(left, Tensor):
        return (
            isinstance(right, Tensor)
            and left.shape == right.shape
            and left.dtype == right.dtype
            and torch.equal(left, right.to(left.device))
        )
    if left is right:
        return True
    return type(left) is type(right) and bool(left == right or (left != left and right != right))
