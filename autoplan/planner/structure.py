"""A graph's structure, computed once: kept in memory and in the user's cache directory, by the graph's fingerprint (torch)."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from autoplan.graphstats import PartitionStats
from autoplan.graphstructure import GraphStructure
from autoplan.partition.ownership import IntArray
from autoplan.partition.structure import structure
from autoplan.planner.measured import MeasuredGraph, edge_arrays, node_counts
from autoplan.search.fingerprint import digest
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import AnyGraph

FORMAT = 2
"""Of the files in the cache; other ones are not read."""

FAN_OUTS = ((15, 10), (15, 10, 5))
"""Sampled where nothing else is asked for: for two and three layers."""

_known: dict[str, GraphStructure] = {}


@dataclass(frozen=True, slots=True)
class _Stored:
    """A file of the cache. ``key``: what it was made for."""

    format: int
    key: str
    structure: GraphStructure


@dataclass(frozen=True, slots=True)
class Described:
    """A structure, and what went wrong with the cache on the way."""

    structure: GraphStructure
    notes: tuple[str, ...] = ()


def graph_structure(
    graph: AnyGraph,
    parts: Iterable[int] = (),
    *,
    hops: int = 3,
    fan_outs: Sequence[Sequence[int]] = FAN_OUTS,
    seed: int = 0,
) -> GraphStructure:
    """Describes a graph: degrees, components, METIS cuts with their growth, sampled neighbourhoods.

    Args:
        graph: a `Data` or a `HeteroData`.
        parts: numbers of parts to cut it into.
        hops: so many are followed out of each part.
        fan_outs: of each neighbourhood that is to be sampled, ``(15, 10)``; -1: all.
        seed: of cuts and draws.

    Raises:
        TraceError: the graph cannot be classified.
    """
    measured = MeasuredGraph.of(graph, GraphSchema.of(graph), parts, seed=seed)
    return describe(measured, hops=hops, fan_outs=fan_outs, seed=seed).structure


def describe(
    measured: MeasuredGraph,
    *,
    hops: int = 3,
    fan_outs: Sequence[Sequence[int]] = FAN_OUTS,
    seed: int = 0,
) -> Described:
    """Describes a graph with the partitions that it was measured with; from memory or the cache where it was done before.

    A file of the cache that cannot be read, is of another format or for something else is not used and written anew.
    """
    cuts = _cuts(measured)
    key = digest(
        {
            "format": FORMAT,
            "graph": measured.fingerprint,
            "cuts": [[stats.parts, stats.method, _content(owner)] for stats, owner in cuts],
            "hops": hops,
            "fan_outs": [list(each) for each in fan_outs],
            "seed": seed,
        }
    )
    if key in _known:
        return Described(_known[key])
    path = cache_directory() / f"{key}.json"
    found, notes = _read(path, key)
    if found is None:
        found = structure(
            node_counts(measured.schema.rows),
            edge_arrays(measured.schema, measured.tensors),
            measured.schema.relations,
            partitions=cuts,
            hops=hops,
            fan_outs=fan_outs,
            seed=seed,
        )
        notes += _write(path, _Stored(FORMAT, key, found))
    _known[key] = found
    return Described(found, tuple(notes))


def cache_directory() -> Path:
    """Where structures are kept: ``autoplan/graphs`` in the user's cache directory."""
    from platformdirs import user_cache_path

    return user_cache_path("autoplan", appauthor=False) / "graphs"


def _cuts(measured: MeasuredGraph) -> list[tuple[PartitionStats, Mapping[str, IntArray]]]:
    """The partitions that a plan may use, and who owns what there."""
    return [
        (
            stats,
            measured.owners[count]
            if count in measured.owners
            else measured.closed_owners[count].nodes,
        )
        for count, stats in measured.stats.partitions.items()
        if count > 1
    ]


def _content(owner: Mapping[str, IntArray]) -> list[str]:
    return [
        hashlib.sha256(np.ascontiguousarray(ranks).data).hexdigest() for ranks in owner.values()
    ]


def _read(path: Path, key: str) -> tuple[GraphStructure | None, list[str]]:
    from pydantic import TypeAdapter, ValidationError

    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None, []
    except OSError as error:
        return None, [f"the cache is not used: {path} cannot be read: {error.strerror}"]
    try:
        stored = TypeAdapter(_Stored).validate_json(text, strict=True)
    except ValidationError:
        return None, [f"the cache file {path} was ignored: it is not what autoplan wrote"]
    if stored.format != FORMAT or stored.key != key:
        return None, [f"the cache file {path} was ignored: it is of something else"]
    return stored.structure, []


def _write(path: Path, stored: _Stored) -> list[str]:
    """Whole or not at all, so that runs at the same time do not disturb each other."""
    from pydantic import TypeAdapter

    content = TypeAdapter(_Stored).dump_json(TypeAdapter(_Stored).validate_python(asdict(stored)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=path.stem)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(beside).replace(path)
        except OSError:
            Path(beside).unlink(missing_ok=True)
            raise
    except OSError as error:
        return [f"the graph's structure is not kept: {path} cannot be written: {error.strerror}"]
    return []
