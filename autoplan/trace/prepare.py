"""What recording a step needs: the graph classified, arguments matched, samples drawn, the loss chosen (torch)."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from autoplan.errors import AutoplanError, TraceError
from autoplan.opgraph import is_edge_axis, is_node_axis, type_of_axis
from autoplan.trace.arguments import Arguments, match_arguments
from autoplan.trace.attributes import describe, dtype_name
from autoplan.trace.clamped import CutShort
from autoplan.trace.constants import node_ids
from autoplan.trace.conversion import conversion_remedy
from autoplan.trace.copies import check_model, copy_model, lazy_parameters, random_state_kept
from autoplan.trace.loss import LossFunction, resolve_loss
from autoplan.trace.model_state import ModelState
from autoplan.trace.remedies import fails_on_rows, first_line, remedy
from autoplan.trace.sampling import GraphSample, Pool, samples_of
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import AnyGraph, label, rows_word
from autoplan.trace.step_module import MODEL, StepModule, user_name
from autoplan.trace.tables import LEAST_ROWS, Tables, tables_of

Metrics = Mapping[str, Callable[..., Any]]

_LEAST_NODES = (1, 43, 150, 700)
"""Nodes of the smallest sample, in the order they are tried."""

_LARGEST_WHOLE = 5000
"""Samples larger than the graph itself are the last that are tried, where it has no more nodes than this."""


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """Everything that recording needs.

    Attributes:
        module: model (a private copy), loss and metrics over the graph's tensors.
        samples: small graphs; the last one is to be held back.
        schema: of the user's graph.
        loss: one sentence that says what the loss is and why.
        lazy: names of the parameters and buffers that the user's model has not sized yet.
        least_nodes: nodes that every sample has at least.
        too_small: the error on a sample that is too small for the step, where no larger ones would do.
    """

    module: StepModule
    samples: tuple[GraphSample, ...]
    schema: GraphSchema
    loss: str
    lazy: tuple[str, ...]
    least_nodes: int
    too_small: str | None = None


def prepare_step(
    model: nn.Module,
    graph: AnyGraph,
    loss: LossFunction | None = None,
    *,
    training: bool = True,
    metrics: Metrics | None = None,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> PreparedStep:
    """Classify the graph, match forward's arguments, draw samples, choose the loss; arguments as in `trace_step`.

    Tensors of the model with an entry for each node are cut to a sample's nodes, if the model then runs on every sample. A
    model or a loss may ask for more nodes than a small sample has (``topk(9)``, ``out[[5, 90]]``, ``out[:140]``): then larger
    samples are drawn, as far as the graph itself is larger.
    """
    check_model(model)
    schema = GraphSchema.of(graph, inputs)
    arguments = match_arguments(model, schema, inputs)
    pool = Pool.of(graph, schema, seed=seed)
    first_error: TraceError | None = None
    first_step: PreparedStep | None = None
    tables = tables_of(model, schema)
    sizes = _sizes_to_try(max(schema.rows[axis] for axis in schema.node_axes))
    for least_nodes, cut in itertools.product(sizes, (tables, {}) if tables else ({},)):
        try:
            step = _prepare(
                model,
                graph,
                loss,
                pool,
                arguments,
                training=training,
                metrics=metrics,
                seed=seed,
                dtype=dtype,
                least_nodes=least_nodes,
                tables=cut,
            )
        except TraceError as error:
            if not cut:
                first_error = first_error or error
            continue
        enough, too_small = _runs_on_all(step)
        if enough:
            return step
        first_step = first_step or replace(step, too_small=too_small)
    if first_step is not None:
        return first_step
    assert first_error is not None
    raise first_error


def _sizes_to_try(nodes: int) -> Iterator[int]:
    """Least nodes of a sample, in the order they are tried; the last is one more than the graph's, so that none is as large."""
    yield _LEAST_NODES[0]
    yield from (least for least in _LEAST_NODES[1:] if least < nodes)
    if _LEAST_NODES[0] < nodes <= _LARGEST_WHOLE:
        yield nodes + 1


def _runs_on_all(step: PreparedStep) -> tuple[bool, str | None]:
    """Whether the smallest sample is large enough for the model, its loss and its metrics, and their error if it is not."""
    smallest = min(step.samples, key=lambda sample: sample.nodes)
    with random_state_kept():
        try:
            with CutShort() as watch:
                _run(copy.deepcopy(step.module), smallest, step.schema)
        except TraceError as error:
            return False, str(error)
    return not watch.found, None


def _prepare(
    model: nn.Module,
    graph: AnyGraph,
    loss: LossFunction | None,
    pool: Pool,
    arguments: Arguments,
    *,
    training: bool,
    metrics: Metrics | None,
    seed: int,
    dtype: torch.dtype | None,
    least_nodes: int,
    tables: Tables,
) -> PreparedStep:
    schema = pool.schema
    with random_state_kept():
        torch.manual_seed(seed)
        copied = copy_model(model, training=training)
        lazy = lazy_parameters(copied)
        samples = _samples(pool, copied, seed, None, least_nodes)
        if lazy:
            bare = StepModule(copied, model, graph, schema, arguments, tables=tables)
            _size_lazy(copied, bare, samples[0], schema)
        samples = _samples(pool, copied, seed, dtype, least_nodes)
        if dtype is not None:
            schema = _cast_schema(schema, dtype)
            copied.to(dtype)
        sentence = "there is no loss: an evaluation step without loss="
        if training and loss is None:
            bare = StepModule(copied, model, graph, schema, arguments, tables=tables)
            output = _run(copy.deepcopy(bare), samples[0], schema)
            sample = dict(zip(schema.names, samples[0].tensors, strict=True))
            resolved = resolve_loss(None, graph, schema, output, sample)
            loss, sentence = resolved.function, resolved.sentence
        elif loss is not None:
            sentence = resolve_loss(loss, graph, schema, None, {}).sentence
        step = StepModule(copied, model, graph, schema, arguments, loss, metrics, tables)
        if dtype is not None:
            step.to(dtype)
        result = _run(copy.deepcopy(step), samples[0], schema)
        if step.has_loss:
            _check_loss(result[0])
        if metrics:
            _check_metrics(result[-1])
    return PreparedStep(step, samples, schema, sentence, lazy, least_nodes)


def _size_lazy(
    copied: nn.Module, bare: StepModule, sample: GraphSample, schema: GraphSchema
) -> None:
    """Lets lazy layers see a sample, in evaluation mode: equal weights for every step, and no running statistics change."""
    modes = {module: module.training for module in copied.modules()}
    copied.eval()
    _run(bare, sample, schema)
    for module, training in modes.items():
        module.training = training


def _samples(
    pool: Pool,
    model: nn.Module,
    seed: int,
    dtype: torch.dtype | None,
    least_nodes: int,
) -> tuple[GraphSample, ...]:
    """Samples whose sizes differ from every width of the model that is known yet."""
    sized = [*model.parameters(), *model.buffers()]
    widths = {size for tensor in sized if not nn.parameter.is_lazy(tensor) for size in tensor.shape}
    drawn = samples_of(pool, widths=widths, seed=seed, least_nodes=least_nodes)
    if dtype is None:
        return drawn
    return tuple(
        replace(sample, tensors=tuple(_cast(tensor, dtype) for tensor in sample.tensors))
        for sample in drawn
    )


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    return tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)


def _cast_schema(schema: GraphSchema, dtype: torch.dtype) -> GraphSchema:
    name = dtype_name(torch.empty(0, dtype=dtype))
    floating = ("float16", "bfloat16", "float32", "float64")
    attributes = tuple(
        replace(spec, dtype=name) if spec.dtype in floating else spec for spec in schema.attributes
    )
    return replace(schema, attributes=attributes)


def _run(step: StepModule, sample: GraphSample, schema: GraphSchema) -> Any:
    """What the step returns for a sample; hooks and losses that note something have noted nothing.

    Raises TraceError that names the module where it fails.
    """
    tensors = [
        tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in sample.tensors
    ]
    try:
        with ModelState(step).code_kept():
            return step(*tensors)
    except AutoplanError:
        raise
    except Exception as error:
        place = _failing_module(step, error)
        message = first_line(error)
        raise TraceError(
            f"{place} fails on a sample of {sample.nodes} nodes and {sample.edges} edges drawn from the "
            f"graph: {type(error).__name__}: {message}{_what_to_do(step, error, message, sample, schema)}"
        ) from error


def _what_to_do(
    step: StepModule, error: Exception, message: str, sample: GraphSample, schema: GraphSchema
) -> str:
    """A clause with the remedy, or nothing: what was captured goes before what PyTorch's message alone suggests."""
    if step.running is not None:
        function, role = step.called(step.running), step.running.role
        table = ""
    else:
        function, role = step.get_submodule(MODEL), "forward"
        table = _node_table(step, schema)
    ids = None
    if not table and fails_on_rows(error, message):
        ids = node_ids(function, role, real=schema.rows, sample=sample.rows)
    if schema.several_types and step.running is None:
        advice = conversion_remedy(error, step.get_submodule(MODEL), step.given_by_type)
        table = table or advice
    return table or (ids and f"; {ids}") or remedy(error, message, step.used, step, schema)


def _failing_module(step: StepModule, error: Exception) -> str:
    """The innermost module that was running when the error was raised, by the user's name."""
    paths = {id(module): path for path, module in step.named_modules()}
    found = ""
    traceback = error.__traceback__
    while traceback is not None:
        owner = traceback.tb_frame.f_locals.get("self")
        found = paths.get(id(owner), found)
        traceback = traceback.tb_next
    if step.running is not None:
        return f"{step.running.what}, called as f(out, graph),"
    if found in ("", MODEL):
        return f"the model ({type(step.get_submodule(MODEL)).__name__})"
    return f"{user_name(found)} ({type(step.get_submodule(found)).__name__})"


def _node_table(step: StepModule, schema: GraphSchema) -> str:
    """For a model that holds a tensor with a row per node or edge: what to do about it."""
    for path, module in step.get_submodule(MODEL).named_modules():
        plain = ((key, value) for key, value in vars(module).items() if isinstance(value, Tensor))
        own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        sized = [(key, value) for key, value in (*own, *plain) if not nn.parameter.is_lazy(value)]
        for key, tensor in sized:
            for axis, rows in schema.rows.items():
                counted = is_node_axis(axis) or is_edge_axis(axis)
                if counted and rows >= LEAST_ROWS and rows in tensor.shape:
                    name = f"{path}.{key}".lstrip(".")
                    where = label(type_of_axis(axis), "x")
                    return (
                        f"; the model's {name!r} has an entry per {rows_word(axis)}, which a smaller graph does not have: put "
                        f"it on the graph, or look its rows up by ids on the graph ({where} = torch.arange(num_nodes))"
                    )
    return ""


def _check_loss(value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TraceError(
            f"the loss is a {type(value).__name__}, which has no gradient; return a tensor of one element, "
            "made of the model's output without .item() or float()"
        )
    if value.numel() != 1:
        raise TraceError(
            f"the loss is {describe(value)}; it must be one number: use .mean() or .sum()"
        )


def _check_metrics(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        one = value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, int | float)
        if not one:
            found = describe(value) if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise TraceError(
                f"metric {name!r} is {found}; it must be one number: give each number a metric of its own"
            )
