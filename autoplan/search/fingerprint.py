"""What a plan was made for, as hex digests: the program and its shapes, the graph's form, the devices.

Canonical JSON (sorted keys, floats by repr) under BLAKE2b, so that a digest depends neither on the hash seed nor on the order
in which mappings were filled. Values never enter: retrained weights are the same model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from autoplan.device import Cluster
from autoplan.opgraph import OpGraph

DIGEST_BYTES = 16
_OF_THE_SAMPLES = ("where", "forward", "backward")


def digest(value: Any) -> str:
    """The digest of plain data: dataclasses, mappings with string keys, sequences, strings, numbers, None.

    Raises:
        TypeError: anything else is inside.
    """
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(_plain(item) for item in value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"cannot fingerprint a {type(value).__name__}")


def model_fingerprint(graph: OpGraph) -> str:
    """Of a program: its ops, shapes, dtypes, states and names of parameters.

    Not where in the source an op stands, nor sizes that were seen on samples of one graph.
    """
    ops = [
        {f.name: getattr(op, f.name) for f in fields(op) if f.name not in _OF_THE_SAMPLES}
        for op in graph.ops
    ]
    return digest(
        {
            "ops": ops,
            "tensors": graph.tensors,
            "outputs": graph.outputs,
            "training": graph.training,
            "has_loss": graph.has_loss,
            "single_only": graph.single_only,
        }
    )


def graph_fingerprint(
    attributes: Mapping[str, tuple[str, tuple[int, ...]]], rows: Mapping[str, int], content: str
) -> str:
    """Of a graph.

    Args:
        attributes: by name, dtype and shape.
        rows: by axis.
        content: a hash of what the plan depends on beyond sizes (the edges), made by the caller; may be empty.
    """
    return digest({"attributes": attributes, "rows": rows, "content": content})


def devices_fingerprint(cluster: Cluster) -> str:
    """Of a cluster: profiles with their figures, hosts, memory and links. Not where a figure was found."""
    devices = [
        {
            "profile": {
                f.name: getattr(d.profile, f.name)
                for f in fields(d.profile)
                if f.name
                not in ("figures", "title", "note", "vendor", "plugin", "price_usd", "aliases")
            },
            "host": d.host,
            "index": d.index,
            "memory_bytes": d.memory_bytes,
        }
        for d in cluster.devices
    ]
    return digest(
        {"devices": devices, "intra_host": cluster.intra_host, "inter_host": cluster.inter_host}
    )
