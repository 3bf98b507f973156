"""A worker process: one rank of a job. ``python -m autoplan.execute.worker JOB_DIR`` under torch's launcher.

It needs torch, `autoplan.program` and `autoplan.execute`: neither the user's model nor torch_geometric.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ErrorHandler, record

from autoplan.execute.job import PROGRESS_FILE, read_job, write_result
from autoplan.execute.loop import train_rank
from autoplan.execute.pipeline_trainer import summing, train_stage_rank
from autoplan.execute.point_to_point import ProcessPeers
from autoplan.execute.processes import ProcessCommunicator
from autoplan.execute.progress import FileReporter, SilentReporter
from autoplan.execute.signs import write_whole
from autoplan.execute.steps import read_sources

_WATCH_SECONDS = 1.0


class FailureRecord(ErrorHandler):
    """Torch's error file, with a time fine enough to tell which rank failed first."""

    def record_exception(self, e: BaseException) -> None:
        """Writes exception, traceback and time; must be called while ``e`` is handled."""
        now = time.time_ns()
        path = self._get_error_file_path()
        if path is None:
            return
        extra = {
            "py_callstack": traceback.format_exc(),
            "timestamp": str(now // 10**9),
            "time_ns": str(now),
        }
        message = {"message": f"{type(e).__name__}: {e}", "extraInfo": extra}
        # the launcher may read it at any time, and this process may be ended while it writes
        write_whole(Path(path), json.dumps({"message": message}))


def main(directory: str, *, parent: int | None = None) -> None:
    """Runs this process's rank of a job. Does not return.

    Args:
        directory: of the job.
        parent: process id of the launcher, where it is known; by default the process that is the parent now.
    """
    try:
        record(run_worker, FailureRecord())(Path(directory), parent or os.getppid())
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        # a normal exit would wait for collectives that other ranks will never join
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    # all is written; taking the interpreter down beside running threads of Python, torch and gloo can abort the process
    os._exit(0)


def run_worker(directory: Path, parent: int) -> None:
    """Joins the group, trains, writes the rank's results; ends when process ``parent`` does."""
    _end_with(directory, parent)
    job = read_job(directory)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    reporter = FileReporter(directory / PROGRESS_FILE) if rank == 0 else SilentReporter()
    sources = read_sources(directory, job, rank, size)
    if job.pipeline is None:
        result = train_rank(job, *sources, ProcessCommunicator(), reporter)
        with_state = rank == 0
    else:
        peers = ProcessPeers(summing(job.pipeline))
        result = train_stage_rank(job, *sources, peers, reporter)
        with_state = rank < len(job.pipeline.programs)
    write_result(directory, rank, result, with_state=with_state)
    # nobody leaves while another still needs its connections
    dist.barrier()
    dist.destroy_process_group()


def _end_with(directory: Path, parent: int) -> None:
    """Ends this process when its parent dies or gives up the job, however that happens."""

    def watch() -> None:
        while os.getppid() == parent and directory.exists():
            time.sleep(_WATCH_SECONDS)
        # a parent that was killed could not clean up
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, name="autoplan-parent-watch", daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1])
