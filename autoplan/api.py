"""The public surface: `optimize`, `trace`, `verify` and `Plan`. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch import nn
from torch.utils.data import Dataset
from torch_geometric.data import Data, HeteroData

from autoplan.cluster import parse_cluster, restored_cluster
from autoplan.device import Cluster
from autoplan.errors import PlanError
from autoplan.execute.optimizers import OptimizerSpec
from autoplan.execute.train import TrainResult
from autoplan.graphspec import GraphSpec
from autoplan.opgraph import OpGraph
from autoplan.plan import Alternative, PlanData, Prediction, StagePlan
from autoplan.planner.arguments import check_metrics, whole_number
from autoplan.planner.bound import Bound, bind_plan
from autoplan.planner.device_check import check_devices
from autoplan.planner.make import make_plan
from autoplan.planner.rebind import rebind_plan
from autoplan.planner.source import source_of
from autoplan.planner.stepping import StepOutcome
from autoplan.planner.verify import Verification
from autoplan.planner.workload import StepRequest, make_workload
from autoplan.report.rebound import Rebound
from autoplan.search import SearchOptions
from autoplan.search.solve import check_request
from autoplan.trace.copies import python_generators_kept, unwrapped
from autoplan.trace.loss import LossFunction
from autoplan.trace.step import Metrics

if TYPE_CHECKING:
    import networkx as nx

Graphs: TypeAlias = Data | HeteroData | Sequence[Data] | Dataset[Data] | GraphSpec
"""One graph (a PyG ``Batch`` is one as well), many, or the sizes of one, for planning only."""

__all__ = [
    "Plan",
    "Rebound",
    "StepOutcome",
    "TrainResult",
    "Verification",
    "optimize",
    "trace",
    "verify",
]


def optimize(
    model: nn.Module,
    graph: Graphs,
    devices: object,
    *,
    batch_size: int | None = None,
    loss: LossFunction | None = None,
    strategy: str = "auto",
    objective: Literal["time", "memory"] = "time",
    exact: bool = True,
    optimizer: str = "adam",
    inputs: Mapping[str, Any] | None = None,
    options: SearchOptions | None = None,
) -> Plan:
    """Plan how a model is trained on a graph with these devices.

    The model, its buffers, caches and gradients, the graph and all random state stay as they are.

    Args:
        model: any module whose forward takes the graph's attributes by name (``x``, ``edge_index``, ...), or the graph.
            Of one that is wrapped in `DistributedDataParallel` or `DataParallel` the model inside, with a warning.
        graph: one graph, a PyG ``Batch``, a list or data set of graphs, or a `GraphSpec` for planning only.
        devices: ``"2xcpu"``, ``["cuda:0", "cuda:1"]``, ``["cpu", "cpu"]``, a TOML file or a `Cluster`.
        batch_size: of many graphs, how many make a step; None for all. They are visited in an order of their own in every
            epoch, the last step of an epoch may have fewer; the plan is priced for the largest batch of such an epoch.
        loss: ``loss(out, graph)``. None: integer ``y`` gives cross-entropy (over ``train_mask`` if there is one), float
            ``y`` of the output's shape mean squared error; without either the plan is forward-only.
        strategy: ``auto`` takes what is best; ``single``, ``data``, ``model``, ``pipeline`` or ``hybrid`` forces a family.
        objective: what is least, ``time`` of a step or ``memory`` of the fullest device.
        exact: only plans that train to one device's numbers. False also allows pipelines whose micro-batches are normalised
            one by one; the plan names each layer.
        optimizer: name in `torch.optim`, lower case; its state is part of the memory sheet.
        inputs: what the attributes are where their names do not tell, and which attribute an argument gets.
        options: how hard to search, and which micro-batches and schedules to try.

    Raises:
        TraceError: the graph cannot be classified, or the model or loss fails on it.
        DeviceError: unknown devices.
        PlanError: a strategy, objective or optimizer that there is not.
        InfeasibleError: nothing fits, or the strategy asked for cannot be had.
    """
    OptimizerSpec(optimizer)
    check_request(strategy, objective)
    cluster = parse_cluster(devices)
    request = StepRequest(loss=loss, training=True, inputs=inputs)
    model = unwrapped(model, tell=True)
    with python_generators_kept():
        data = make_plan(
            model,
            source_of(graph, batch_size, inputs),
            cluster,
            request,
            strategy=strategy,
            objective=objective,
            optimizer=optimizer,
            options=replace(options or SearchOptions(), exact=exact),
        )
    return Plan(data, cluster=cluster, request=request, model=model)


def trace(
    model: nn.Module,
    graph: Graphs,
    loss: LossFunction | None = None,
    *,
    training: bool = True,
    inputs: Mapping[str, Any] | None = None,
) -> OpGraph:
    """The operator dataflow graph of one step of a model on a graph; arguments as in `optimize`.

    Raises:
        TraceError: the graph cannot be classified, or the model or loss fails on it.
    """
    source = source_of(graph, None, inputs)
    request = source.request(StepRequest(loss, training, None, inputs))
    return make_workload(unwrapped(model, tell=True), source.whole, request).opgraph


def verify(
    plan: Plan,
    model: nn.Module,
    graph: Graphs,
    *,
    steps: int = 3,
    seed: int = 0,
) -> Verification:
    """Prove that a plan trains to one device's numbers (see `autoplan.planner.verify`).

    Args:
        plan: to be proven; model and graph: that it was made for; neither is changed.
        model: see plan.
        graph: see plan.
        steps: SGD steps to compare; where a step takes some of many graphs, each on a batch of its own.
        seed: of the random draws (dropout), which are equal on one device and many.

    Raises:
        PlanError: the plan was made for another model or graph.
        TraceError: in float64 the model is another program.
    """
    return plan._bind(model, graph).verify(steps=steps, seed=seed)


@dataclass(frozen=True, eq=False)
class Plan:
    """A plan that can be read, saved, run and verified.

    Attributes:
        data: the plan as data (`PlanData`), which is what `save` writes.
        cluster: the devices that it was made for; None where it was loaded: those of the same profiles here.
        request: the user's functions and hints.
        model: that it was made for; None where it was loaded.
        changes: after `rebind`, what changed; prints as text.
    """

    data: PlanData
    cluster: Cluster | None = field(default=None, repr=False)
    request: StepRequest = field(default_factory=StepRequest, repr=False)
    model: nn.Module | None = field(default=None, repr=False)
    changes: Rebound | None = field(default=None, repr=False)

    @property
    def strategy(self) -> str:
        """``single``, ``data``, ``model``, ``pipeline`` or ``hybrid``."""
        return self.data.strategy

    @property
    def exact(self) -> bool:
        """Whether a training step equals one device's, up to rounding."""
        return self.data.exact

    @property
    def status(self) -> str:
        """``optimal``, ``feasible`` or ``heuristic``."""
        return self.data.status

    @property
    def gap(self) -> float:
        """Of the objective, against the least lower bound of all candidates."""
        return self.data.gap

    @property
    def planning_only(self) -> bool:
        """Made for a `GraphSpec`: it can be read and rebound to a graph, not run."""
        return self.data.planning_only

    @property
    def predicted(self) -> Prediction:
        """Seconds, peak bytes and communication bytes of one step."""
        return self.data.predicted

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Every candidate with its price or the reason it was rejected."""
        return self.data.alternatives

    @property
    def stages(self) -> tuple[StagePlan, ...]:
        """Devices, strategies, transitions and memory of each stage."""
        return self.data.stages

    def explain(self) -> str:
        """The plan and why it was chosen, as text of at most 100 columns."""
        from autoplan.report.text import explain

        return explain(self.data)

    def __str__(self) -> str:
        return self.explain()

    def to_networkx(self) -> nx.DiGraph:
        """The planned ops as nodes with their stage and strategy, in program order; transitions and sends are in `stages`."""
        import networkx as nx

        graph = nx.DiGraph()
        stage_of = {c.op: number for number, stage in enumerate(self.stages) for c in stage.choices}
        choices = (choice for stage in self.stages for choice in stage.choices)
        for choice in sorted(choices, key=lambda choice: choice.op):
            graph.add_node(
                choice.op,
                name=choice.name,
                module=choice.module,
                stage=stage_of[choice.op],
                strategy=choice.strategy,
            )
            graph.add_edges_from((earlier, choice.op) for earlier in choice.after)
        return graph

    def save(self, path: str | Path) -> None:
        """Writes the plan's JSON document; equal plans give equal bytes."""
        Path(path).write_text(self.data.to_json(), encoding="utf-8")

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        devices: object = None,
        loss: LossFunction | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> Plan:
        """Reads a saved plan.

        Args:
            path: that `save` wrote.
            devices: to run it on, as in `optimize`; they must be those that it was made for. None: these, by name.
            loss: the loss it was made with, where one was given; functions are not part of the file.
            inputs: as given to `optimize`.

        Raises:
            PlanError: no such file, no plan, one of another version, or one for other devices than those given.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(f"{path} cannot be read as a plan: {error}") from error
        try:
            data = PlanData.from_json(text)
        except PlanError as error:
            raise PlanError(f"{path}: {error}") from error
        cluster = None
        if devices is not None:
            cluster = parse_cluster(devices)
            check_devices(data, cluster)
        return cls(data, cluster, StepRequest(loss=loss, training=True, inputs=inputs))

    def rebind(
        self, graph: Graphs, model: nn.Module | None = None, *, devices: object = None
    ) -> Plan:
        """The same strategies for a graph of other sizes or edges: partitioned, measured and priced anew.

        Args:
            graph: with the attributes of the plan's graph, of any size.
            model: that the plan was made for; needed where it was loaded from a file.
            devices: as in `optimize`; by default those of the plan, with the figures that they have now.

        Returns:
            A plan for this graph; its `changes` print what changed.

        Raises:
            PlanError: other attributes, another program, too few devices, or no model.
            InfeasibleError: the plan's strategies do not fit this graph or these devices.
        """
        model = model if model is not None else self.model
        if model is None:
            raise PlanError(
                "this plan was loaded from a file, which holds no model; give it: plan.rebind(graph, model)"
            )
        model = unwrapped(model)
        cluster = parse_cluster(devices) if devices is not None else self._cluster()
        data = rebind_plan(self.data, cluster, self.request, model, graph)
        return Plan(data, cluster, self.request, model, Rebound.of(self.data, data))

    def train(
        self,
        model: nn.Module,
        graph: Graphs,
        *,
        epochs: int,
        lr: float = 0.01,
        seed: int = 0,
        weight_decay: float = 0.0,
        metrics: Metrics | None = None,
        evaluate_every: int | None = None,
        progress: bool = True,
        **optimizer_arguments: Any,
    ) -> TrainResult:
        """Train the model as planned: local worker processes where the plan has several, else in this process.

        Args:
            model: that the plan was made for; its weights and buffers are the trained ones afterwards.
            graph: that the plan was made for.
            epochs: how often everything is seen: steps on the whole graph, or passes over all graphs in batches.
            lr: learning rate.
            seed: of all random draws and of the order of graphs; equal for any number of workers.
            weight_decay: of the optimizer (see below).
            metrics: by name, ``metric(out, graph)`` in evaluation mode, one number each, on everything at once.
            evaluate_every: also evaluate after every so many epochs.
            progress: draw a bar on stderr, if that is a terminal.
            **optimizer_arguments: more arguments of the plan's optimizer (``momentum=0.9``).

        A plan counts the memory of its optimizer with torch's default arguments, for it knows no others. ``momentum`` of sgd and
        rmsprop, ``centered`` of rmsprop and ``amsgrad`` of the Adams keep one more number for each weight, which no plan has;
        ``weight_decay`` (except adamw's) takes, while it updates, once more the size of the largest weight on a CPU and at most
        that of all weights elsewhere, ``nesterov`` that of the largest on a CPU. Leave room for that (``SearchOptions(head_room=...)``) where memory is short.

        Raises:
            PlanError: another model or graph than planned for, no loss, an argument that is out of range, or one that the
                optimizer does not have.
            DeviceError: the plan's devices are not here.
            ExecutionError: a worker failed; carries rank and traceback, and the model is unchanged.
        """
        epochs, seed = whole_number("epochs", epochs, 1), whole_number("seed", seed)
        if evaluate_every is not None:
            evaluate_every = whole_number("evaluate_every", evaluate_every, 1)
        check_metrics(metrics)
        optimizer = OptimizerSpec(
            self.data.optimizer, {"lr": lr, "weight_decay": weight_decay, **optimizer_arguments}
        )
        return self._bind(model, graph).train(
            optimizer=optimizer,
            epochs=epochs,
            seed=seed,
            metrics=metrics,
            evaluate_every=evaluate_every,
            progress=progress,
        )

    def step(
        self, model: nn.Module, graph: Graphs, *, train: bool = True, seed: int | None = None
    ) -> StepOutcome:
        """One step on everything, without an update, the plan's ranks as threads of this process.

        Args:
            model: that the plan was made for; it is not changed.
            graph: that the plan was made for.
            train: in training mode, with loss and gradients where there is a loss; else in evaluation mode.
            seed: of random draws; by default drawn from torch's global generator, so that each call drops others.
        """
        drawn = int(torch.randint(2**31 - 1, ())) if seed is None else whole_number("seed", seed)
        return self._bind(model, graph).step(training=train, seed=drawn)

    def predict(self, model: nn.Module, graph: Graphs) -> Any:
        """The model's outputs in evaluation mode, rows in the user's order of nodes (or graphs)."""
        return self._bind(model, graph).step(training=False, seed=0).outputs

    def _bind(self, model: nn.Module, graph: Graphs) -> Bound:
        """The plan with a model and a graph that it was made for. Raises PlanError where it was not."""
        cluster = self._cluster()
        check_devices(self.data, cluster)
        return bind_plan(self.data, cluster, self.request, unwrapped(model), graph)

    def _cluster(self) -> Cluster:
        """The plan's devices, with the figures that they have here. Raises DeviceError where there are no such profiles."""
        return self.cluster or restored_cluster(self.data.cluster)
