"""A plan as data: versioned JSON, frozen, no torch. `autoplan.api.Plan` adds what needs torch.

The dataclasses are checked by pydantic where a file is read or written (imported there: it is not free); inside the
program they are plain.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from autoplan.clusteruse import ClusterUse
from autoplan.consistency import seals
from autoplan.errors import PlanError
from autoplan.opgraph import State
from autoplan.plandocument import check_document, check_version, misfit, parsed

if TYPE_CHECKING:
    from pydantic import TypeAdapter

PLAN_VERSION = 3
Strategy = Literal["single", "data", "model", "pipeline", "hybrid"]
Status = Literal["optimal", "feasible", "heuristic"]
Schedule = Literal["gpipe", "1f1b"]
"""Order of a stage's micro-batches: all forward, then all backward; or one forward, one backward as soon as it can."""


@dataclass(frozen=True, slots=True)
class Range:
    """A predicted number: the value, and between what it is expected."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the simulator expects of one training step.

    Attributes:
        step_seconds: one step, all ranks.
        peak_bytes: tensor memory at its highest, per device in rank order.
        communication_bytes: payload handed to collectives in one training step, per device in rank order: what a rank
            sends to others in an exchange of rows, to other stages in messages, the tensor in an all-reduce. Exact, but for
            messages with rows that a mask selects, whose number only the data decide.
        compute_seconds, communication_seconds: what step_seconds is made of, where all devices step together. With stages
            they wait for each other: then these are of the device that computes longest, and of the one that communicates
            longest.
    """

    step_seconds: Range
    peak_bytes: tuple[Range, ...]
    communication_bytes: tuple[int, ...]
    compute_seconds: float
    communication_seconds: float


@dataclass(frozen=True, slots=True)
class OpChoice:
    """The strategy one op runs with (``strategy`` names an `OpStrategy` of that op); ``after``: the ops it reads from."""

    op: int
    name: str
    module: str
    strategy: str
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedTransition:
    """Tensor ``tensor`` is brought from a state to another by an exchange, once per step.

    ``made_by`` says where it comes from: ``aten.mm in convs.1.lin``.
    """

    tensor: str
    source: State
    target: State
    exchange: str
    forward_bytes: tuple[int, ...]
    backward_bytes: tuple[int, ...]
    made_by: str = ""


@dataclass(frozen=True, slots=True)
class MemorySheet:
    """Where one device's tensor memory goes, in bytes. ``total`` includes ``head_room``."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    messages: float
    inputs: float
    transient: float
    buffers: float
    head_room: float
    capacity: float | None

    @property
    def peak(self) -> float:
        """Everything but the head-room."""
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.messages
            + self.inputs
            + self.transient
            + self.buffers
        )


@dataclass(frozen=True, slots=True)
class PlannedTransfer:
    """A tensor that a stage sends to a later one for every micro-batch; its gradient comes back where one is needed.

    Attributes:
        tensor: single-assignment name; made_by: where it comes from; state: that it travels in.
        target: the stage that it is sent to.
        forward_bytes: of one step, per rank of the sending stage; backward_bytes: per rank of the target stage.
    """

    tensor: str
    made_by: str
    state: State
    target: int
    forward_bytes: tuple[int, ...]
    backward_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A part of the ops on one group of devices (ranks); what an op reads is made in its own or an earlier stage.

    Attributes:
        devices: ranks; choices: one per op of the stage; transitions: between states, once per step (and micro-batch) each.
        sends: tensors that later stages read, in program order.
        inputs: graph attributes and the states they are loaded in.
        parameters, buffers, attributes: the model's own names of what every rank of the stage holds; attributes are
            plain tensors that are neither.
        memory: one sheet per rank.
        busy_seconds: predicted time of one step in which a rank of the stage computes or sends, mean over its ranks.
    """

    devices: tuple[int, ...]
    choices: tuple[OpChoice, ...]
    transitions: tuple[PlannedTransition, ...]
    inputs: tuple[tuple[str, State], ...]
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    attributes: tuple[str, ...]
    memory: tuple[MemorySheet, ...]
    sends: tuple[PlannedTransfer, ...] = ()
    busy_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PipelineUse:
    """How stages work together; replica r of stage s runs on rank ``stages[s].devices[r]``.

    Attributes:
        schedule: order of the micro-batches; micro_batches: of each replica; replicas: of the whole pipeline.
        bubble: predicted share of the step in which a device waits, mean over the devices.
    """

    schedule: Schedule
    micro_batches: int
    replicas: int
    bubble: float


@dataclass(frozen=True, slots=True)
class BatchUse:
    """What one step is made of where the data is many graphs (or one graph of many components).

    Attributes:
        unit: what is never cut; units: how many there are; batch_size: how many make a step (the last may have fewer).
        steps_per_epoch: steps in which each unit is used once.
    """

    unit: Literal["graph", "component"]
    units: int
    batch_size: int
    steps_per_epoch: int


@dataclass(frozen=True, slots=True)
class Alternative:
    """A candidate: its price, or the reason it was rejected. The chosen one is listed too."""

    name: str
    strategy: Strategy
    devices: int
    step_seconds: float | None
    peak_bytes: float | None
    lower_bound_seconds: float | None
    reason: str | None
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Hex digests of what a plan was made for.

    ``graph`` covers schema, sizes and edges; ``schema`` only what the graph's attributes are. They are equal where the plan was
    made for a `GraphSpec`.
    """

    model: str
    graph: str
    schema: str
    devices: str


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One rank of the plan: the device's profile by name, its host, and its memory limit in bytes.

    ``position`` is its place among the devices that were offered.
    """

    rank: int
    profile: str
    kind: str
    host: int
    memory_bytes: int | None
    torch_device: str | None
    position: int


@dataclass(frozen=True, slots=True)
class TypeRows:
    """Nodes of one type (``axis``: ``node[paper]``) that each part owns, and the halo rows that it reads."""

    axis: str
    owned: tuple[int, ...]
    halo: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionUse:
    """How the graph is cut: enough to make the same partition again.

    ``types``: of a graph of several node types, the rows of each; left out of the document where there is one type.
    """

    method: str
    parts: int
    seed: int
    cut_edges: int
    owned_nodes: tuple[int, ...]
    halo_nodes: tuple[int, ...]
    owned_edges: tuple[int, ...]
    types: tuple[TypeRows, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanData:
    """The whole answer. Field order is the JSON's order; no timings, no paths, no dates.

    ``rebound``: its strategies were chosen for another graph and kept; ``devices`` are those that it uses, ``cluster`` all
    that were offered. ``graph_attributes``: by name, as ``float32 [node, 8]``. ``model_tensors``: what the program reads of
    the model, by name, as ``float32 [8, 16], trained`` (``frozen (requires_grad=False)``, ``no gradient``,
    ``buffer``).
    """

    version: int
    autoplan_version: str
    strategy: Strategy
    forced: bool
    rebound: bool
    exact: bool
    status: Status
    gap: float
    deterministic: bool
    objective: str
    optimizer: str
    loss: str
    generality: str
    generality_reason: str | None
    devices_text: str
    devices: tuple[DeviceUse, ...]
    cluster: ClusterUse
    graph_rows: tuple[tuple[str, int], ...]
    graph_attributes: tuple[tuple[str, str], ...]
    model_tensors: tuple[tuple[str, str], ...]
    partition: PartitionUse | None
    batch: BatchUse | None
    pipeline: PipelineUse | None
    stages: tuple[StagePlan, ...]
    predicted: Prediction
    alternatives: tuple[Alternative, ...]
    unknown_ops: tuple[str, ...]
    notes: tuple[str, ...]
    fingerprints: Fingerprints

    @property
    def planning_only(self) -> bool:
        """Made for the sizes of a graph (`GraphSpec`): it can be read and rebound, not run."""
        return self.fingerprints.graph == self.fingerprints.schema

    def to_dict(self) -> dict[str, Any]:
        """The plan in JSON's types, fields in order, every number of its declared type (a float 3 is 3.0)."""
        document = asdict(_adapter().validate_python(asdict(self)))
        if self.partition is not None and not self.partition.types:
            del document["partition"]["types"]
        return document

    def to_json(self) -> str:
        """The plan's document with its seals; equal plans give equal bytes. Raises ValueError for a number that is not finite."""
        document = self.to_dict()
        sealed = {**document, "seals": seals(document)}
        return json.dumps(sealed, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PlanData:
        """Reads `to_json`'s document.

        Raises:
            PlanError: it is cut off or no JSON, of another version, has fields that do not fit, numbers that are not finite, or
                fields that contradict each other or were changed; names the field by its JSON path, with its value.
        """
        from pydantic import ValidationError

        document = parsed(text)
        check_version(document, PLAN_VERSION)
        try:
            plan = _adapter().validate_json(text, strict=True)
        except ValidationError as error:
            wrong = "; ".join(misfit(detail["loc"], detail) for detail in error.errors()[:5])
            raise PlanError(
                f"this plan does not fit version {PLAN_VERSION}: {wrong}; plan again"
            ) from error
        check_document(document, plan.to_dict())
        return plan


@cache
def _adapter() -> TypeAdapter[PlanData]:
    """Reads and writes plans; made once, as that takes longer than a plan does."""
    from pydantic import TypeAdapter

    return TypeAdapter(PlanData)
