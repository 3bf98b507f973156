"""Reading rows by position. Provenance decides: owned rows are at hand in O, source ends need the halo, others all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoplan.opgraph import IndexInto, OpStrategy, State, TensorMeta
from autoplan.trace.rules import work
from autoplan.trace.rules.axes import Dim, Dims
from autoplan.trace.rules.call import Call, Output, Ruling, normal
from autoplan.trace.rules.placement import ROW_STATES
from autoplan.trace.rules.registry import rule
from autoplan.trace.rules.shifts import is_moved, points_into


@rule("gather", "index_select")
def index_select(call: Call) -> Ruling:
    """Rows of ``self`` at ``index`` along ``dim``."""
    source = call.tensor("self")
    dim = normal(call.arguments["dim"], len(source.dims))
    return _indexed(call, source, dim, call.tensor("index"))


@rule("gather", "embedding")
def embedding(call: Call) -> Ruling:
    """Rows of ``weight``."""
    return _indexed(call, call.tensor("weight"), 0, call.tensor("indices"))


@rule("gather", "index")
def index(call: Call) -> Ruling:
    """Indexing by one tensor, of positions or of booleans, or by several that name one entry each (``out[rows, y]``)."""
    source = call.tensor("self")
    given = [(d, t) for d, t in enumerate(call.arguments["indices"]) if isinstance(t, TensorMeta)]
    if len(given) != 1:
        return _jointly(call, source, given)
    ((dim, chosen),) = given
    if chosen.dtype in ("bool", "uint8"):
        return _masked(call, source, dim, chosen)
    return _indexed(call, source, dim, chosen)


@rule("gather", "gather", "take_along_dim")
def gather(call: Call) -> Ruling:
    """One entry of ``self`` along ``dim`` for each entry of ``index``."""
    source, chosen = call.tensor("self"), call.tensor("index")
    dim = normal(call.arguments["dim"], len(source.dims))
    forward, backward = work.gather(call, source, chosen, chosen.dims, dim)
    output = Output(chosen.dims)
    plain = Ruling((output,), forward, backward)
    rest = [p for p in range(len(source.dims)) if p != dim]
    if any(source.dims[p] != chosen.dims[p] for p in rest):
        return plain
    cut = call.axes.cut(source.dims)
    if dim not in cut:
        return Ruling((output,), forward, backward, _within_rows(call, source, chosen, chosen.dims))
    need = state_of(call, source.dims[dim], chosen.index)
    if need is None or len(cut) > 1 or call.sharded(chosen) is None or source.index is not None:
        return plain
    placed: Mapping[str, State] = {source.name: need, chosen.name: "O"}
    strategy = call.strategy("O", placed, "O")
    return Ruling((output,), forward, backward, (strategy,), reads_positions=True)


@rule("gather", "nonzero")
def nonzero(call: Call) -> Ruling:
    """The positions along an axis where a tensor along it holds."""
    source = call.inputs[0]
    cut = call.sharded(source)
    forward, backward = work.moved(call, call.matched())
    if len(source.dims) != 1 or cut is None or source.dtype != "bool":
        return Ruling((Output(call.matched()),), forward, backward)
    axis = call.axes.select(call.first_of(source), cut.axis, call.seen(0)[0])
    output = Output((axis, 1), IndexInto((cut.axis,), ("self",)))
    strategy = call.strategy("O", {source.name: "O"}, "O")
    return Ruling((output,), forward, backward, (strategy,), reads_positions=True)


def _indexed(call: Call, source: TensorMeta, dim: int, chosen: TensorMeta) -> Ruling:
    """``self[:, ..., index, ...]``: the dimensions of the index take the place of ``dim``."""
    dims = source.dims[:dim] + chosen.dims + source.dims[dim + 1 :]
    forward, backward = work.gather(call, source, chosen, dims, dim, chosen.dims)
    cut = call.axes.cut(source.dims)
    plain = Ruling((Output(dims),), forward, backward)
    if source.index is not None and not (len(source.index.ends) == 1 or dim > 0):
        return plain
    output = Output(dims, source.index)
    strategies: tuple[OpStrategy, ...]
    if dim in cut:
        need = state_of(call, source.dims[dim], chosen.index)
        if len(cut) > 1 or call.sharded(chosen) is None:
            return plain
        if chosen.index is None and source.index is None:
            # numbers that nothing is known of (a permutation) are those of the whole
            every = call.strategy("any", {source.name: "R", chosen.name: "O"}, "O", rows="O")
            return Ruling((output,), forward, backward, (every,))
        if need is None:
            return plain
        strategies = (call.strategy("O", {source.name: need, chosen.name: "O"}, "O"),)
        if call.axes.counts_graphs(source.dims[dim]):
            whole: Mapping[str, State] = {source.name: "R", chosen.name: "O"}
            strategies += (call.strategy("whole", whole, "O", rows="O"),)
    elif chosen.index is not None:
        # positions along an axis that index something else: only their global values mean it
        return plain
    else:
        strategies = _within_rows(call, source, chosen, dims)
    return Ruling((output,), forward, backward, strategies, reads_positions=True)


def _jointly(call: Call, source: TensorMeta, given: Sequence[tuple[int, TensorMeta]]) -> Ruling:
    """``out[rows, y]``: positions along the cut axis, and beside them an entry of fixed dimensions for each."""
    first, last = given[0][0], given[-1][0]
    shapes = {chosen.dims for _, chosen in given}
    boolean = any(chosen.dtype in ("bool", "uint8") for _, chosen in given)
    if last - first != len(given) - 1 or len(shapes) > 1 or boolean:
        dims = call.matched()
        return Ruling((Output(dims),), *work.gather(call, source, given[0][1], dims, 0))
    (shape,) = shapes
    dims = (*source.dims[:first], *shape, *source.dims[last + 1 :])
    forward, backward = work.gather(call, source, given[0][1], dims, first, shape)
    plain = Ruling((Output(dims),), forward, backward)
    cut = call.axes.cut(source.dims)
    along = [chosen for dim, chosen in given if (dim,) == cut]
    beside = [chosen for dim, chosen in given if (dim,) != cut]
    if len(along) != 1 or source.index is not None or call.axes.sharded(shape) is None:
        return plain
    need = state_of(call, source.dims[cut[0]], along[0].index)
    if need is None or any(chosen.index is not None for chosen in beside):
        return plain
    states: dict[str, State] = {chosen.name: "O" for _, chosen in given}
    strategy = call.strategy("O", {**states, source.name: need}, "O")
    return Ruling((Output(dims),), forward, backward, (strategy,), reads_positions=True)


@rule("gather", "masked_select")
def masked_select(call: Call) -> Ruling:
    """Elements where a mask holds, in one dimension; of a table they are no rows."""
    source, mask = call.tensor("self"), call.tensor("mask")
    if len(source.dims) == 1 and source.dims == mask.dims:
        return _masked(call, source, 0, mask)
    dims = call.matched()
    forward, backward = work.gather(call, source, mask, dims, 0)
    return Ruling((Output(dims),), forward, backward)


def _masked(call: Call, source: TensorMeta, dim: int, mask: TensorMeta) -> Ruling:
    """Rows where a mask holds: a new axis, the same for every tensor that the same mask cuts."""
    seen = call.seen(0)
    if len(mask.dims) != 1 or source.dims[dim] != mask.dims[0] or not isinstance(mask.dims[0], str):
        dims = call.matched()
        forward, backward = work.gather(call, source, mask, dims, 0)
        return Ruling((Output(dims),), forward, backward)
    axis: Dim = call.axes.select(call.first_of(mask), mask.dims[0], seen[dim])
    dims = (*source.dims[:dim], axis, *source.dims[dim + 1 :])
    forward, backward = work.gather(call, source, mask, dims, dim)
    cut = call.axes.cut(source.dims)
    if cut != (dim,):
        return Ruling((Output(dims),), forward, backward)
    at = source.index
    owned = call.owned_where.get(mask.name, {}).get(True, frozenset())
    if at is not None and call.identity(source) in owned and not is_moved(at):
        at = IndexInto(at.axes, tuple("dst" for _ in at.ends))
    strategy = call.strategy("O", {source.name: "O", mask.name: "O"}, "O")
    return Ruling((Output(dims, at),), forward, backward, (strategy,), reads_positions=True)


def state_of(call: Call, axis: Dim, at: IndexInto | None) -> State | None:
    """The state that rows must be in to be read at local positions; None: only whole."""
    named = at is not None and "any" not in at.ends and isinstance(axis, str)
    if not named or at is None or not points_into(call.axes, at, str(axis)):
        return None
    if call.axes.is_whole(at):
        return "O"
    return "H" if call.axes.has_halo(str(axis)) else None


def _within_rows(
    call: Call, source: TensorMeta, chosen: TensorMeta, dims: Dims
) -> tuple[OpStrategy, ...]:
    """Indexing that stays within a row: a table in R at indices of any rows, or rows at the same entries for all."""
    if source.index is not None or chosen.index is not None:
        return ()
    axes = {tensor.dims[p] for tensor in (source, chosen) for p in call.axes.cut(tensor.dims)}
    many = any(len(call.axes.cut(tensor.dims)) > 1 for tensor in (source, chosen))
    if len(axes) != 1 or many or len(call.axes.cut(dims)) != 1:
        return ()
    (axis,) = axes
    return tuple(
        call.strategy(
            state,
            {t.name: state for t in (source, chosen) if call.axes.cut(t.dims)},
            state,
        )
        for state in ROW_STATES
        if state == "O" or call.axes.has_halo(str(axis))
    )
