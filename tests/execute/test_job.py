from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from autoplan.errors import PlanError
from autoplan.execute.audit import IssuedCollective
from autoplan.execute.job import (
    Evaluation,
    RankResult,
    job_directory,
    read_job,
    read_result,
    read_shard,
    write_job,
    write_result,
    write_shard,
)
from tests.execute.jobs import make


def test_a_job_is_read_as_it_was_written(tmp_path: Path) -> None:
    job = make(2).job
    write_job(tmp_path, job)
    found = read_job(tmp_path)
    for name in ("epochs", "seed", "optimizer", "metrics", "device", "default_dtype"):
        assert getattr(found, name) == getattr(job, name)
    assert found.program.source == job.program.source
    assert list(found.parameters) == list(job.parameters)
    for name, value in job.parameters.items():
        assert torch.equal(found.parameters[name], value)


def test_a_shard_is_read_as_it_was_written(tmp_path: Path) -> None:
    for data in make(3).parts:
        write_shard(tmp_path, data)
    found, written = read_shard(tmp_path, 1), make(3).parts[1]
    assert found.shard.rank == 1
    np.testing.assert_equal(asdict(found.shard), asdict(written.shard))
    assert torch.equal(found.inputs["x", "O"], written.inputs["x", "O"])


def test_a_shard_file_holds_no_more_than_the_shard(tmp_path: Path) -> None:
    data = make(2).parts[0]
    big = torch.zeros(10**6)[:3]
    write_shard(tmp_path, replace(data, inputs={("x", "O"): big}))
    assert (tmp_path / "shard-0.pt").stat().st_size < 20_000


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = RankResult(
        losses=(1.0, 0.5),
        evaluations=(Evaluation(2, {"accuracy": 0.9}),),
        step_seconds=(0.1, 0.2),
        threads=1,
        audited=(1,),
        collectives=(IssuedCollective("allreduce_", 8),),
        resident_bytes=10,
        peak_bytes=20,
        parameters={"weight": torch.ones(2)},
        buffers={},
    )
    write_result(tmp_path, 0, result, with_state=True)
    found = read_result(tmp_path, 0)
    assert torch.equal(found.parameters["weight"], torch.ones(2))
    assert (found.losses, found.step_seconds, found.audited) == ((1.0, 0.5), (0.1, 0.2), (1,))
    assert found.evaluations == result.evaluations
    assert found.collectives == result.collectives
    assert found.communication_bytes == 8
    write_result(tmp_path, 1, result, with_state=False)
    assert read_result(tmp_path, 1).parameters == {}


def test_the_directory_goes_away_however_it_ends() -> None:
    def interrupted() -> None:
        with job_directory() as directory:
            seen.append(directory)
            (directory / "shard-0.pt").write_bytes(b"0")
            raise KeyboardInterrupt

    seen: list[Path] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not seen[0].exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"evaluate_every": 0}, "evaluate_every is 0"),
        ({"program": replace(make(1).job.program, has_loss=False)}, "no loss.*plan with loss="),
        ({"program": replace(make(1).job.program, trained=())}, "no parameter gets a gradient"),
    ],
)
def test_jobs_that_cannot_train_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        replace(make(1).job, **changes)
