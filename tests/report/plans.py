"""Hand-made plans for the tests of what people read."""

from __future__ import annotations

from dataclasses import replace

from autoplan.clusteruse import ClusterUse, DeviceRun, LinkUse, ProfileUse
from autoplan.plan import (
    PLAN_VERSION,
    Alternative,
    DeviceUse,
    Fingerprints,
    MemorySheet,
    OpChoice,
    PartitionUse,
    PipelineUse,
    PlanData,
    PlannedTransfer,
    PlannedTransition,
    Prediction,
    Range,
    StagePlan,
)

KIB = 1024


def sheet(scale: int = 1) -> MemorySheet:
    return MemorySheet(
        weights=4 * KIB,
        gradients=4 * KIB,
        optimizer=8 * KIB,
        activations=100 * KIB * scale,
        messages=20 * KIB,
        inputs=50 * KIB * scale,
        transient=10 * KIB,
        buffers=0,
        head_room=30 * KIB,
        capacity=2**30,
    )


def cpus(count: int, memory: int | None = 2**30) -> ClusterUse:
    figures = (("flop_per_s.float32", 8e10), ("bytes_per_s", 1.6e10), ("cores", 2.0))
    return ClusterUse(
        devices=(DeviceRun("cpu", 0, 0, count, memory, False),),
        profiles=(ProfileUse("cpu", "cpu", "cpu", figures),),
        intra_host=LinkUse(6.7e-5, 6.9e8, "cpu peers", False),
        inter_host=None,
    )


def alternatives(
    chosen: str, single: float, data: float, ranks: int = 2
) -> tuple[Alternative, ...]:
    return (
        Alternative("single", "single", 1, single, 346 * KIB, single, None, chosen == "single"),
        Alternative("data on 2", "data", ranks, data, 196 * KIB, data, None, chosen == "data"),
        Alternative("model:stages", "model", 2, None, None, None, "not in this version"),
    )


def data_plan(forced: bool = True, ranks: int = 2) -> PlanData:
    transition = PlannedTransition(
        "v7", "O", "H", "halo_exchange", (2 * KIB,) * ranks, (3 * KIB,) * ranks
    )
    stage = StagePlan(
        devices=tuple(range(ranks)),
        choices=(
            OpChoice(0, "aten.mm.default", "conv1.lin", "O"),
            OpChoice(1, "aten.index_select.default", "conv1", "H"),
            OpChoice(2, "aten.scatter_add.default", "conv1", "O"),
            OpChoice(3, "aten.foo.default", "", "R"),
        ),
        transitions=(transition,),
        inputs=(("x", "O"), ("edge_index", "O")),
        parameters=("conv1.lin.weight",),
        buffers=(),
        attributes=(),
        memory=tuple(sheet() for _ in range(ranks)),
    )
    return PlanData(
        version=PLAN_VERSION,
        autoplan_version="0.1.0",
        strategy="data",
        forced=forced,
        rebound=False,
        exact=True,
        status="optimal",
        gap=0.0,
        deterministic=True,
        objective="time",
        optimizer="adam",
        loss="the loss is cross-entropy over train_mask, as y holds integers and loss= was not given",
        generality="general",
        generality_reason=None,
        devices_text=f"{ranks}xcpu",
        devices=tuple(DeviceUse(r, "cpu", "cpu", 0, 2**30, "cpu", r) for r in range(ranks)),
        cluster=cpus(ranks),
        graph_rows=(("edge", 4500 * ranks), ("node", 900 * ranks)),
        graph_attributes=(("edge_index", "int64 [2, edge]"), ("x", "float32 [node, 8]")),
        model_tensors=(("conv1.weight", "float32 [8, 16], trained"),),
        partition=PartitionUse(
            "metis", ranks, 0, 120, (900,) * ranks, (60,) * ranks, (4500,) * ranks
        ),
        batch=None,
        pipeline=None,
        stages=(stage,),
        predicted=Prediction(
            step_seconds=Range(2.5e-3, 2e-3, 4e-3),
            peak_bytes=tuple(Range(196 * KIB, 180 * KIB, 230 * KIB) for _ in range(ranks)),
            communication_bytes=(9 * KIB,) * ranks,
            compute_seconds=1.0e-3,
            communication_seconds=1.5e-3,
        ),
        alternatives=alternatives("data", 1.2e-3, 2.5e-3, ranks),
        unknown_ops=("aten.foo.default",),
        notes=("peak memory counts tensors, not the interpreter",),
        fingerprints=Fingerprints("a1", "b2", "s2", "c3"),
    )


def pipeline_plan(replicas: int = 1, micro_batches: int = 4) -> PlanData:
    """Two stages; the second has the end of the third layer, and its gradient goes back."""
    first, second = range(0, 2 * replicas, 2), range(1, 2 * replicas, 2)
    state = "R" if replicas * micro_batches == 1 else "O"
    send = PlannedTransfer(
        "v7", "aten.relu in forward", state, 1, (2 * KIB,) * replicas, (KIB,) * replicas
    )

    def stage(number: int, ranks: range, modules: tuple[str, ...]) -> StagePlan:
        return StagePlan(
            devices=tuple(ranks),
            choices=tuple(
                OpChoice(10 * number + i, "aten.mm.default", module, state)
                for i, module in enumerate(modules)
            ),
            transitions=(),
            inputs=(("edge_index", state),),
            parameters=(f"convs.{number}.lin.weight",),
            buffers=(),
            attributes=(),
            memory=tuple(sheet(number + 1) for _ in ranks),
            sends=() if number else (send,),
            busy_seconds=1e-3 * (number + 1),
        )

    family = "hybrid" if replicas > 1 else "pipeline" if micro_batches > 1 else "model"
    ranks = 2 * replicas
    parts = replicas * micro_batches
    base = data_plan(ranks=ranks)
    sheets = [sheet(rank % 2 + 1) for rank in range(ranks)]
    return replace(
        base,
        strategy=family,
        graph_rows=(("edge", 450 * parts), ("node", 90 * parts)),
        partition=PartitionUse("closed", parts, 0, 0, (90,) * parts, (0,) * parts, (450,) * parts)
        if parts > 1
        else None,
        pipeline=PipelineUse("1f1b", micro_batches, replicas, 0.25),
        stages=(
            stage(0, first, ("convs.0.lin", "convs.1.lin", "convs.2.lin")),
            stage(1, second, ("convs.2.aggr", "head")),
        ),
        predicted=replace(
            base.predicted,
            peak_bytes=tuple(Range(s.peak, 0.9 * s.peak, 1.1 * s.peak) for s in sheets),
            communication_bytes=(2 * KIB, KIB) * replicas,
        ),
        alternatives=(
            Alternative("single", "single", 1, 4e-3, 300 * KIB, 4e-3, None),
            Alternative(
                f"{family} of 2 stages", family, ranks, 2.5e-3, 346 * KIB, None, None, True
            ),
        ),
    )


def single_plan() -> PlanData:
    stage = StagePlan(
        devices=(0,),
        choices=(OpChoice(0, "aten.mm.default", "conv1.lin", "R"),),
        transitions=(),
        inputs=(("x", "R"),),
        parameters=("conv1.lin.weight",),
        buffers=(),
        attributes=(),
        memory=(replace(sheet(2), optimizer=0, transient=18 * KIB, capacity=None),),
    )
    return PlanData(
        version=PLAN_VERSION,
        autoplan_version="0.1.0",
        strategy="single",
        forced=False,
        rebound=False,
        exact=True,
        status="feasible",
        gap=0.02,
        deterministic=False,
        objective="time",
        optimizer="sgd",
        loss="the loss is the given function 'weighted'",
        generality="concrete",
        generality_reason="forward branches on a value at model.py:7",
        devices_text="2xcpu",
        devices=(DeviceUse(0, "cpu", "cpu", 0, None, "cpu", 0),),
        cluster=cpus(2, None),
        graph_rows=(("edge", 500), ("node", 100)),
        graph_attributes=(("edge_index", "int64 [2, edge]"), ("x", "float32 [node, 8]")),
        model_tensors=(("conv1.weight", "float32 [8, 16], trained"),),
        partition=None,
        batch=None,
        pipeline=None,
        stages=(stage,),
        predicted=Prediction(
            step_seconds=Range(1.2e-3, 1e-3, 2e-3),
            peak_bytes=(Range(346 * KIB, 346 * KIB, 346 * KIB),),
            communication_bytes=(0,),
            compute_seconds=1.2e-3,
            communication_seconds=0.0,
        ),
        alternatives=alternatives("single", 1.2e-3, 2.5e-3),
        unknown_ops=(),
        notes=(),
        fingerprints=Fingerprints("a1", "b2", "s2", "c3"),
    )
