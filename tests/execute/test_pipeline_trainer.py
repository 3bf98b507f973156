"""Training in stages on worker processes. Each run starts processes (seconds each), so one run serves several tests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN

from autoplan.errors import ExecutionError
from autoplan.execute.job import Pipeline, TrainJob
from autoplan.execute.loop import RankTrainer
from autoplan.execute.message import Message
from autoplan.execute.optimizers import OptimizerSpec
from autoplan.execute.pipeline_trainer import PipelineTrainer
from autoplan.execute.point_to_point import run_peers
from autoplan.execute.rewrite import rank_program
from autoplan.execute.stage_program import homes, stage_programs
from autoplan.execute.steps import FixedSteps, sources_of
from autoplan.execute.train import TrainResult, run_training
from autoplan.planner.check import state_of
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.source import source_of
from autoplan.planner.steps import trace_source
from autoplan.planner.workload import StepRequest, make_workload
from autoplan.program.communicator import LocalCommunicator
from autoplan.stages import following, module_stages
from autoplan.trace.schema import GraphSchema
from tests.execute.cuts import even
from tests.execute.test_micro_batches import (
    SIZES,
    Counted,
    components,
    own_rows,
    square_error,
)
from tests.execute.test_pipeline import CLASSES, FEATURES, HIDDEN

OPTIMIZER = OptimizerSpec("adam", {"lr": 0.02})


def error_metric(out, graph):
    return (out - graph.y).abs().mean()


@dataclass
class Setting:
    model: torch.nn.Module
    graph: object
    training: object
    evaluation: object

    @classmethod
    def of(cls, norm=None) -> Setting:
        torch.manual_seed(3)
        model = GCN(FEATURES, HIDDEN, 3, CLASSES, dropout=0.5, jk="cat", norm=norm).double()
        graph = components()
        training = make_workload(model, graph, StepRequest(square_error))
        request = StepRequest(None, False, {"error": error_metric})
        return cls(model, graph, training, make_workload(model, graph, request))

    def job(self, **changes) -> TrainJob:
        parameters, buffers = state_of(self.training)
        settings = {
            "program": None,
            "parameters": parameters,
            "buffers": buffers,
            "optimizer": OPTIMIZER,
            "epochs": 6,
            "seed": 3,
            "default_dtype": torch.float64,
            "evaluate_every": 3,
        }
        return TrainJob(**(settings | changes))

    @property
    def metrics(self):
        return {"error": len(self.evaluation.traced.program.outputs) - 1}

    def alone(self) -> TrainResult:
        training, evaluation = self.training, self.evaluation
        step = rank_program(training.traced.program, training.opgraph, {})
        evaluate = rank_program(evaluation.traced.program, evaluation.opgraph, {})
        job = self.job(program=step, evaluation=evaluate, metrics=self.metrics)
        measured = MeasuredGraph.of(self.graph, training.traced.schema, (1,))
        wanted = [*step.inputs, *evaluate.inputs]
        return run_training(job, measured.rank_data(1, wanted), workers=1, progress=False)

    def piped(self, stages, schedule, replicas, micro_batches):
        """The job, its parts and the whole."""
        training, evaluation = self.training, self.evaluation
        parts = replicas * micro_batches
        several = parts > 1
        cut = even(training.opgraph, stages)
        programs = stage_programs(
            training.traced.program,
            training.opgraph,
            own_rows(training.opgraph) if several else {},
            cut,
            partial_loss=several,
        )
        evaluate = stage_programs(
            evaluation.traced.program,
            evaluation.opgraph,
            {},
            following(evaluation.opgraph, homes(programs), module_stages(training.opgraph, cut)),
            partial_loss=False,
            stages=stages,
        )
        pipeline = Pipeline(programs, schedule, micro_batches, replicas, evaluate)
        measured = MeasuredGraph.of(self.graph, training.traced.schema, (1,), closed_parts=(parts,))
        wanted = [i for p in programs for i in p.program.inputs]
        later = [i for p in evaluate for i in p.program.inputs]
        job = self.job(pipeline=pipeline, metrics=self.metrics)
        (whole,) = measured.rank_data(1, [*wanted, *later])
        if not several:
            return job, [whole], None
        return job, list(measured.rank_data(parts, wanted, closed=True)), whole


@pytest.fixture(scope="module")
def setting() -> Setting:
    return Setting.of()


@pytest.fixture(scope="module")
def alone(setting) -> TrainResult:
    return setting.alone()


@dataclass
class Trained:
    """What a run of all ranks gave."""

    losses: list[float]
    metrics: list[float]
    parameters: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]


def in_threads(job, parts, whole, workers) -> Trained:
    """The trainers of all ranks as threads; nothing is watched, for torch has one profiler for all threads."""

    def work(peers):
        mine = FixedSteps(tuple(parts[number] for number in job.held_by(peers.rank)))
        evaluated = mine if whole is None else FixedSteps((whole,))
        trainer = PipelineTrainer(job, mine, evaluated, peers)
        losses, metrics = [], []
        for number in range(job.steps):
            trainer.start_step(number)
            losses.append(float(trainer.whole_loss(trainer.train_step())))
            if number % 3 == 2:
                metrics.append(trainer.evaluate().get("error"))
        return Trained(losses, metrics, trainer.parameters(), trainer.buffers())

    ranks = run_peers(workers, work)
    first = ranks[0]
    for rank, program in zip(ranks, job.pipeline.programs, strict=False):
        first.parameters.update(rank.parameters)
        first.buffers.update({name: rank.buffers[name] for name in program.program.written})
    return first


def assert_equal(found: Trained, alone: TrainResult) -> None:
    assert found.losses == pytest.approx(alone.losses, rel=1e-10)
    assert alone.losses[-1] < alone.losses[0]
    metrics = [evaluation.metrics["error"] for evaluation in alone.evaluations]
    assert found.metrics == pytest.approx(metrics, rel=1e-9)
    assert found.parameters.keys() == alone.parameters.keys()
    for name, value in alone.parameters.items():
        torch.testing.assert_close(found.parameters[name], value, rtol=1e-8, atol=1e-8)
    for name, value in alone.buffers.items():
        torch.testing.assert_close(found.buffers[name], value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("stages", "schedule", "replicas", "micro_batches"),
    [(2, "gpipe", 1, 1), (3, "1f1b", 1, 3), (2, "1f1b", 2, 2), (1, "gpipe", 1, 3)],
)
def test_training_on_threads(setting, alone, stages, schedule, replicas, micro_batches):
    job, parts, whole = setting.piped(stages, schedule, replicas, micro_batches)
    assert_equal(in_threads(job, parts, whole, stages * replicas), alone)


def test_batch_norm_with_one_micro_batch():
    normed = Setting.of(norm="batch_norm")
    job, parts, whole = normed.piped(3, "gpipe", 1, 1)
    assert_equal(in_threads(job, parts, whole, 3), normed.alone())


@pytest.fixture(scope="module")
def four(setting) -> tuple[TrainJob, TrainResult]:
    job, parts, whole = setting.piped(2, "1f1b", 2, 2)
    return job, run_training(job, parts, workers=4, whole=whole, progress=False)


def test_four_workers_train_to_the_numbers_of_one(four, alone):
    result = four[1]
    assert [evaluation.epoch for evaluation in result.evaluations] == [3, 6]
    metrics = [evaluation.metrics["error"] for evaluation in result.evaluations]
    assert_equal(Trained(result.losses, metrics, result.parameters, result.buffers), alone)


def test_what_was_sent_is_counted(four, setting):
    job, result = four
    first, last = job.pipeline.programs
    ahead = Message.of(first.sends, first.tensors, first.axes)
    back = Message.of(last.receives, last.tensors, last.axes, gradients=True)
    sent = [[c for c in rank.collectives if c.name == "send"] for rank in result.ranks]
    # of both micro-batches the activations with their sizes ahead, and the gradients
    assert [len(calls) for calls in sent] == [4, 2] * 2
    assert [call.payload_bytes for call in sent[0]][::2] == [8 * len(ahead.header)] * 2
    nodes = [rows["node"] for rows in owned_rows(setting.graph, 4)]
    for rank, calls in ((1, sent[1]), (3, sent[3])):
        mine = [nodes[part] for part in job.held_by(rank)]
        widths = sum(meta.dims[1] for meta in back.metas)
        assert [call.payload_bytes for call in calls] == [8 * widths * rows for rows in mine]
    for rank, program in zip(result.ranks, (first, last, first, last), strict=True):
        summed = [call.payload_bytes for call in rank.collectives if call.name == "allreduce_"]
        assert summed == [sum(job.parameters[name].nbytes for name in program.program.trained)]
        received = [call for call in rank.collectives if call.name == "recv_"]
        assert received
        assert not any(call.payload_bytes for call in received)
        assert rank.peak_bytes > rank.resident_bytes > 0


def owned_rows(graph, parts):
    measured = MeasuredGraph.of(graph, GraphSchema.of(graph), (1,), closed_parts=(parts,))
    return [shard.owned_rows for shard in measured.stats.closed[parts].shards]


def test_a_stage_holds_only_its_own_weights(four):
    job, result = four
    held = [set(rank.parameters) for rank in result.ranks[:2]]
    assert held[0] == set(job.pipeline.programs[0].program.parameters)
    assert held[0].isdisjoint(held[1])


def test_a_failure_ends_all_and_names_the_rank(setting):
    job, parts, whole = setting.piped(2, "gpipe", 1, 2)
    first, last = job.pipeline.programs
    broken = replace(
        last.program, source=last.program.source.replace("    return", "    1 / 0\n    return")
    )
    pipeline = replace(job.pipeline, programs=(first, replace(last, program=broken)))
    with pytest.raises(ExecutionError, match=r"rank 1.*failed: ZeroDivisionError"):
        run_training(replace(job, pipeline=pipeline), parts, workers=2, whole=whole, progress=False)


@pytest.mark.parametrize(("stages", "replicas", "micro_batches"), [(2, 1, 2), (2, 2, 2), (3, 3, 1)])
def test_steps_that_take_some_of_many_graphs(stages, replicas, micro_batches):
    """The last batch of an epoch has one graph: parts, and whole replicas, have nothing to do."""
    torch.manual_seed(1)
    graphs = [
        Data(
            x=torch.randn(nodes, FEATURES, dtype=torch.float64),
            edge_index=torch.randint(0, nodes, (2, edges)),
            y=torch.randn(nodes, CLASSES, dtype=torch.float64),
        )
        for nodes, edges in SIZES
    ]
    source = source_of(graphs, batch_size=3)
    model = Counted(FEATURES, HIDDEN, 2, CLASSES, dropout=0.5).double()
    workload = trace_source(model, source, StepRequest(square_error))
    program, opgraph = workload.traced.program, workload.opgraph
    parameters, buffers = state_of(workload)
    job = TrainJob(
        rank_program(program, opgraph, {}),
        parameters,
        buffers,
        OPTIMIZER,
        epochs=2,
        order=source.order(3),
    )
    alone = RankTrainer(job, *sources_of(job, source.collection, 0, 1), LocalCommunicator())
    programs = stage_programs(
        program, opgraph, own_rows(opgraph), even(opgraph, stages), partial_loss=True
    )
    pipeline = Pipeline(programs, "1f1b", micro_batches, replicas)
    piped = replace(job, program=None, pipeline=pipeline)

    def work(peers):
        sources = sources_of(piped, source.collection, peers.rank, peers.size)
        return stepped(PipelineTrainer(piped, *sources, peers), piped.steps)

    ranks = run_peers(stages * replicas, work)
    losses, expected, counted = stepped(alone, job.steps)
    assert ranks[0][0] == pytest.approx(losses, rel=1e-10)
    for _, mine, own in ranks:
        for name, value in mine.items():
            torch.testing.assert_close(value, expected[name], rtol=1e-8, atol=1e-9)
        for name, value in own.items():
            assert torch.equal(value, counted[name])


def stepped(trainer, steps):
    losses = []
    for number in range(steps):
        trainer.start_step(number)
        losses.append(float(trainer.whole_loss(trainer.train_step())))
    return losses, trainer.parameters(), trainer.buffers()
