"""Graphs for demos, examples and tests, without a download. Torch is imported when a graph is made."""

from __future__ import annotations

import gzip
import pickle
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autoplan.errors import AutoplanError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch_geometric.data import Data

_PUBLIC_VALIDATION = 500
"""Validation nodes of Planetoid's public split; they follow the training nodes."""

_DIGITS_SHARES = (0.3, 0.2)
"""Training and validation nodes of the digits graph; the others are tested on."""


def digits(k: int = 8, *, seed: int = 0) -> Data:
    """Scikit-learn's digits: 1,797 images, each joined with its ``k`` nearest neighbours in both directions.

    Args:
        k: neighbours of an image, by Euclidean distance of the pixels; of equally near ones the first in scikit-learn's
            order. The graph is the same on every machine.
        seed: of the split (30 % training, 20 % validation, 50 % test).

    Returns:
        A graph with ``x`` (float32 [1797, 64], pixels from 0 to 1), ``edge_index``, ``y`` (10 classes) and three masks.
    """
    import torch
    from sklearn.datasets import load_digits
    from torch_geometric.data import Data

    images, labels = load_digits(return_X_y=True)
    pixels = (images / 16).astype(np.float32)
    count = len(labels)
    near = _nearest(images, k).ravel()
    each = np.repeat(np.arange(count), k)
    order = np.random.default_rng(seed).permutation(count)
    training, validation = (int(share * count) for share in _DIGITS_SHARES)
    return Data(
        x=torch.from_numpy(pixels),
        edge_index=torch.from_numpy(
            _edges(np.concatenate([each, near]), np.concatenate([near, each]))
        ),
        y=torch.from_numpy(labels.astype(np.int64)),
        train_mask=torch.from_numpy(_mask(order[:training], count)),
        val_mask=torch.from_numpy(_mask(order[training : training + validation], count)),
        test_mask=torch.from_numpy(_mask(order[training + validation :], count)),
    )


def rings_and_trees(count: int = 120, *, seed: int = 0) -> list[Data]:
    """Small graphs of two classes: random trees of 6 to 20 nodes (label 0), and rings of as many (label 1), in turn.

    Args:
        count: how many.
        seed: of sizes and trees.

    Returns:
        Graphs with ``x`` (float32 [n, 1], ones), ``edge_index`` (both directions) and ``y`` (int64 [1]).
    """
    import torch
    from torch_geometric.data import Data

    random = np.random.default_rng(seed)
    found = []
    for number in range(count):
        nodes, label = int(random.integers(6, 21)), number % 2
        later = np.arange(1 - label, nodes)
        earlier = (later - 1) % nodes if label else random.integers(0, later)
        ends = torch.from_numpy(np.stack([later, earlier]))
        found.append(
            Data(
                x=torch.ones(nodes, 1),
                edge_index=torch.cat([ends, ends.flip(0)], dim=1),
                y=torch.tensor([label]),
            )
        )
    return found


def planetoid(directory: str | Path, name: str, *, normalise: bool = True) -> Data:
    """Cora, CiteSeer or PubMed from Planetoid's raw files, with the public split.

    Args:
        directory: holds ``NAME/raw/ind.name.x`` and its seven sisters (or is that ``NAME`` or ``raw`` folder).
        name: ``Cora``, in any case.
        normalise: divide the rows of the features by their sums.

    Returns:
        A graph with ``x`` (float32), ``edge_index`` (both directions, no self-loops, no duplicates), ``y`` and three masks.
        Test nodes that the files leave out (CiteSeer has 15) are isolated, with zero features and label 0.

    Raises:
        AutoplanError: a file is missing, or holds more than arrays, lists and dictionaries.
    """
    import torch
    from torch_geometric.data import Data

    folder = _raw_folder(Path(directory), name)
    tx, allx, y, ty, ally, neighbours = (
        _unpickled(folder / f"ind.{name.lower()}.{part}")
        for part in ("tx", "allx", "y", "ty", "ally", "graph")
    )
    # Rows of tx and ty follow test.index; the other nodes come first and in order.
    tested = np.loadtxt(folder / f"ind.{name.lower()}.test.index", dtype=np.int64)
    count = max(int(tested.max()) + 1, len(neighbours))
    features = np.zeros((count, allx.shape[1]), dtype=np.float32)
    features[: allx.shape[0]] = allx.toarray()
    features[tested] = tx.toarray()
    labels = np.zeros((count, ally.shape[1]), dtype=np.int64)
    labels[: ally.shape[0]] = ally
    labels[tested] = ty
    if normalise:
        features /= features.sum(axis=1, keepdims=True).clip(min=1)
    trained = np.arange(y.shape[0])
    pairs = [(node, other) for node, others in neighbours.items() for other in others]
    sources, targets = np.array(pairs, dtype=np.int64).T
    return Data(
        x=torch.from_numpy(features),
        edge_index=torch.from_numpy(
            _edges(np.concatenate([sources, targets]), np.concatenate([targets, sources]))
        ),
        y=torch.from_numpy(labels.argmax(axis=1)),
        train_mask=torch.from_numpy(_mask(trained, count)),
        val_mask=torch.from_numpy(_mask(y.shape[0] + np.arange(_PUBLIC_VALIDATION), count)),
        test_mask=torch.from_numpy(_mask(tested, count)),
    )


def tu_graphs(path: str | Path) -> list[Data]:
    """Graphs for classification in the text format of the TU collections (MUTAG, PROTEINS, NCI1, ...), gzipped or not.

    The format: the number of graphs; then for each graph a line ``nodes label`` and for each of its nodes a line ``tag
    neighbours first second ...``, nodes counted from 0.

    Args:
        path: of the file, ``NAME.txt`` or ``NAME.txt.gz``.

    Returns:
        For each graph ``x`` (float32 [N, tags], one column for each tag of the file, ascending), ``edge_index`` (an edge
        from a node to each neighbour that it lists: both directions, as the files list both) and ``y`` (int64 [1], labels
        as classes 0 to C-1, ascending).

    Raises:
        AutoplanError: the file is missing or does not have the format; names the line.
    """
    import torch
    from torch_geometric.data import Data

    parsed = _tu_text(Path(path))
    classes = {label: place for place, label in enumerate(sorted({g.label for g in parsed}))}
    tags = sorted({tag for graph in parsed for tag in graph.tags})
    columns = {tag: place for place, tag in enumerate(tags)}
    graphs = []
    for graph in parsed:
        x = torch.zeros(len(graph.tags), len(tags))
        x[torch.arange(len(graph.tags)), [columns[tag] for tag in graph.tags]] = 1.0
        ends = torch.tensor([graph.sources, graph.targets], dtype=torch.int64)
        graphs.append(Data(x=x, edge_index=ends, y=torch.tensor([classes[graph.label]])))
    return graphs


@dataclass(frozen=True, slots=True)
class _TuGraph:
    """One graph of a TU file: its label, the tag of each node, and the ends of each edge."""

    label: int
    tags: list[int]
    sources: list[int]
    targets: list[int]


def _tu_text(path: Path) -> list[_TuGraph]:
    """The graphs of a file. Raises AutoplanError."""
    if not path.is_file():
        raise AutoplanError(f"{path} is missing; give a TU text file such as MUTAG.txt.gz")
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        lines = iter(enumerate(file, start=1))

        def numbers(least: int) -> list[int]:
            number, line = next(lines, (0, ""))
            try:
                found = [int(word) for word in line.split()]
            except ValueError:
                found = []
            if len(found) < least:
                where = f"line {number}" if number else "its end"
                raise AutoplanError(
                    f"{path} is no TU text file: at {where} are no {least} whole numbers"
                )
            return found

        return [_tu_graph(numbers) for _ in range(numbers(1)[0])]


def _tu_graph(numbers: Callable[[int], list[int]]) -> _TuGraph:
    """The next graph; ``numbers(least)`` gives the numbers of the next line, of which there must be so many."""
    nodes, label = numbers(2)[:2]
    graph = _TuGraph(label, [], [], [])
    for node in range(nodes):
        tag, count, *neighbours = numbers(2)
        graph.tags.append(tag)
        graph.sources.extend([node] * count)
        graph.targets.extend(neighbours[:count])
    return graph


def _nearest(points: NDArray[Any], k: int) -> NDArray[np.int64]:
    """The ``k`` nearest others [N, k] of points [N, d] with small whole coordinates; of equally near ones the first.

    Sums of whole numbers are exact in float64, in whatever order a library and its threads add them.
    """
    exact = points.astype(np.float64)
    squares = (exact * exact).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * (exact @ exact.T)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


def _edges(sources: NDArray[Any], targets: NDArray[Any]) -> NDArray[np.int64]:
    """Edges [2, E] ordered by target and source, without self-loops and duplicates."""
    pairs = np.stack([targets, sources]).astype(np.int64)
    unique = np.unique(pairs[:, pairs[0] != pairs[1]], axis=1)
    return np.ascontiguousarray(unique[::-1])


def _mask(nodes: NDArray[Any], count: int) -> NDArray[np.bool_]:
    mask = np.zeros(count, dtype=bool)
    mask[nodes] = True
    return mask


def _raw_folder(directory: Path, name: str) -> Path:
    """The folder with the raw files. Raises AutoplanError with where they were looked for."""
    looked = [directory / name / "raw", directory / "raw", directory]
    if directory.is_dir():
        looked += [d / "raw" for d in directory.iterdir() if d.name.lower() == name.lower()]
    for folder in looked:
        if (folder / f"ind.{name.lower()}.x").is_file():
            return folder
    places = ", ".join(str(folder) for folder in looked[:3])
    raise AutoplanError(
        f"no file ind.{name.lower()}.x in {places}; give the directory that holds Planetoid's {name}/raw"
    )


def _unpickled(path: Path) -> Any:
    """The content of one of Planetoid's pickles (written by Python 2)."""
    if not path.is_file():
        raise AutoplanError(f"{path} is missing; Planetoid's raw files are eight for each graph")
    with path.open("rb") as file:
        return _DataUnpickler(file, encoding="latin1").load()


class _DataUnpickler(pickle.Unpickler):
    """Reads arrays, sparse matrices, lists and dictionaries, and refuses everything else: pickles can run code."""

    def find_class(self, module: str, name: str) -> Any:
        from scipy.sparse import csr_matrix

        allowed = {
            ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
            ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("scipy.sparse.csr", "csr_matrix"): csr_matrix,
            ("scipy.sparse._csr", "csr_matrix"): csr_matrix,
            ("collections", "defaultdict"): defaultdict,
            ("__builtin__", "list"): list,
            ("builtins", "list"): list,
        }
        if (module, name) not in allowed:
            raise AutoplanError(
                f"the file asks for {module}.{name}, but Planetoid's files hold only arrays, lists and dictionaries"
            )
        return allowed[module, name]
