"""Writing rows by position: local where every position is an owned row (edges live with their destination).

Sums at source ends are local up to the halo rows, whose sums go to their owners.

Within a rank rows keep their global order, so what depends on the order of writes (the last one wins) comes out the same.
"""

from __future__ import annotations

from autoplan.opgraph import Collective, OpStrategy, State, TensorMeta
from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling, normal, product
from autoplan.trace.rules.placement import by_rows
from autoplan.trace.rules.registry import rule
from autoplan.trace.rules.shifts import points_into


@rule("scatter", "scatter_add", "scatter_reduce", "scatter")
def scattered(call: Call) -> Ruling:
    """``self[index[i, j], j] += src[i, j]`` (``dim`` 0), or a maximum, a product, a plain write."""
    target, index = call.tensor("self"), call.tensor("index")
    dim = normal(call.arguments["dim"], len(target.dims))
    given = call.get("src")
    source = given if isinstance(given, TensorMeta) else None
    rest_agrees = all(target.dims[p] == index.dims[p] for p in range(len(target.dims)) if p != dim)
    same = source is None or source.dims == index.dims
    return _written(call, target, dim, index, source, rest_agrees and same)


@rule("scatter", "index_add", "index_reduce", "index_copy", "index_fill")
def index_added(call: Call) -> Ruling:
    """Rows of ``source`` added to the rows of ``self`` at ``index``."""
    target, index = call.tensor("self"), call.tensor("index")
    dim = normal(call.arguments["dim"], len(target.dims))
    given = call.get("source")
    source = given if isinstance(given, TensorMeta) and given.dims else None
    dims = (*target.dims[:dim], *index.dims, *target.dims[dim + 1 :])
    fits = len(index.dims) == 1 and (source is None or source.dims == dims)
    return _written(call, target, dim, index, source, fits)


@rule("scatter", "index_put", "_index_put_impl", "_unsafe_index_put")
def index_put(call: Call) -> Ruling:
    """``self[index] = values`` or ``+=``, with one index along the first dimension; a mask writes row by row."""
    target, values = call.tensor("self"), call.tensor("values")
    given = [(d, t) for d, t in enumerate(call.arguments["indices"]) if isinstance(t, TensorMeta)]
    dim, index = given[0]
    if len(given) == 1 and index.dtype == "bool" and len(index.dims) == len(target.dims) > 1:
        # one value where the mask holds
        rows = by_rows(call, target.dims) if not values.dims else ()
        return Ruling((Output(target.dims),), *work.elementwise(call, target.dims), rows)
    if len(given) != 1 or len(index.dims) != 1:
        return Ruling((Output(target.dims),), *work.elementwise(call, target.dims))
    dims = (*target.dims[:dim], *index.dims, *target.dims[dim + 1 :])
    if index.dtype == "bool":
        forward, backward = work.elementwise(call, target.dims)
        return Ruling((Output(target.dims),), forward, backward, _masked(call, target, dim, index))
    return _written(call, target, dim, index, values, not values.dims or values.dims == dims)


def _written(
    call: Call,
    target: TensorMeta,
    dim: int,
    index: TensorMeta,
    source: TensorMeta | None,
    fits: bool,
) -> Ruling:
    forward, backward = work.scatter(call, target, source, index, dim)
    output = Output(target.dims)
    cut = call.axes.cut(target.dims)
    if dim not in cut:
        # within a row: what is written, where and into what share the rows
        plain = fits and target.index is None and index.index is None
        if not cut and plain:
            return Ruling((output,), forward, backward, _summed(call, target, index, source))
        rows = by_rows(call, target.dims) if plain and cut and _shares(call, target) else ()
        return Ruling((output,), forward, backward, rows)
    at = index.index
    axis = str(target.dims[dim])
    local = at is not None and len(at.ends) == 1 and points_into(call.axes, at, axis)
    if not local or at is None or "any" in at.ends:
        return Ruling((output,), forward, backward)
    others = [tensor for tensor in (index, source) if tensor is not None and tensor.dims]
    cuts = {call.sharded(tensor) for tensor in others}
    if not fits or len(cut) > 1 or None in cuts or len(cuts) > 1 or target.index is not None:
        return Ruling((output,), forward, backward)
    if source is not None and source.index is not None:
        # positions that are written as data would be read as local ones
        return Ruling((output,), forward, backward, reads_positions=True)
    states: dict[str, State] = {tensor.name: "O" for tensor in (target, *others)}
    strategies: tuple[OpStrategy, ...] = (call.strategy("O", states, "O"),)
    if not call.axes.is_whole(at):
        strategies = _to_sources(call, target, dim, source, states)
    if call.axes.counts_graphs(target.dims[dim]):
        strategies += _summed(call, target, index, source, "partial")
    return Ruling((output,), forward, backward, strategies, reads_positions=True)


def _to_sources(
    call: Call, target: TensorMeta, dim: int, source: TensorMeta | None, states: dict[str, State]
) -> tuple[OpStrategy, ...]:
    """Rows added at source ends: what falls on halo rows goes to their owners. A closed partition has no such rows."""
    width = product((*target.dims[:dim], *target.dims[dim + 1 :]))
    fixed = all(isinstance(d, int) for p, d in enumerate(target.dims) if p != dim)
    axis = str(target.dims[dim])
    base = call.axes.axes[axis].kind == "base" and call.axes.has_halo(axis)
    if source is None or not fixed or not _adds(call) or not base:
        return ()
    gradient = target.requires_grad or source.requires_grad
    elements = int(width.evaluate({}))
    sent = Collective(elements, target.dtype, 1, int(gradient), axis)
    return (
        call.strategy("O", states, "O", closed=True),
        call.strategy(
            "O to sources",
            states,
            "O",
            rows="O",
            kernel="add_to_sources",
            collectives=(sent,),
            closed=False,
        ),
    )


def _masked(call: Call, target: TensorMeta, dim: int, mask: TensorMeta) -> tuple[OpStrategy, ...]:
    """One value for all rows of a mask, or the values of the rows that this mask selects."""
    values = call.tensor("values")
    if mask.dims != target.dims[dim : dim + 1]:
        return ()
    if not values.dims:
        return by_rows(call, target.dims)
    selected = (*target.dims[:dim], f"select({call.first_of(mask)})", *target.dims[dim + 1 :])
    if values.dims != selected or call.axes.cut(target.dims) != (dim,):
        return ()
    return (call.strategy("O", dict.fromkeys((t.name for t in call.inputs), "O"), "O"),)


def _summed(
    call: Call,
    target: TensorMeta,
    index: TensorMeta,
    source: TensorMeta | None,
    name: str = "O",
) -> tuple[OpStrategy, ...]:
    """Rows of shards added to a target that the partition does not cut (a row for each class or graph): a partial sum."""
    if source is None or source.index is not None or not _adds(call):
        return ()
    others = [tensor for tensor in (index, source) if tensor.dims]
    cuts = {call.sharded(tensor) for tensor in others}
    if None in cuts or len(cuts) > 1:
        return ()
    states: dict[str, State] = {target.name: "S", **{tensor.name: "O" for tensor in others}}
    return (call.strategy(name, states, "S", rows="O"),)


def _adds(call: Call) -> bool:
    """Whether the target's own value and every written one add up."""
    if call.base in ("scatter_add", "index_add"):
        return True
    if call.base == "scatter_reduce":
        return call.get("reduce") == "sum" and call.get("include_self", True) is True
    return "index_put" in call.base and call.get("accumulate") is True


def _shares(call: Call, target: TensorMeta) -> bool:
    """Whether every tensor of the call has the target's rows at the same place."""
    cut = call.sharded(target)
    return cut is not None and all(
        call.sharded(tensor) == cut for tensor in call.inputs if tensor.dims
    )
