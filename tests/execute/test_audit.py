"""What the audit counts, on calls and programs whose numbers are known."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from autoplan.execute.audit import CollectiveCounter, peak_memory, storage_bytes

MIB = 2**20


@pytest.fixture
def group() -> Iterator[None]:
    store = dist.HashStore()
    timeout = datetime.timedelta(seconds=10)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timeout)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_counter_sees_every_collective_whoever_issues_it() -> None:
    counter = CollectiveCounter(rank=0)
    rows = torch.zeros(4, 3)
    weight = torch.ones(5, dtype=torch.float64, requires_grad=True)
    weight.register_hook(lambda gradient: dist.all_reduce(gradient.clone()))
    dist.all_reduce(rows)
    with counter:
        dist.all_reduce(rows)
        dist.all_to_all_single(torch.empty(4, 3), rows, [4], [4])
        dist.all_gather([torch.empty(2)], torch.zeros(2))
        dist.broadcast(torch.zeros(7, dtype=torch.int64), src=0)
        weight.sum().backward()
        dist.barrier()
    dist.all_reduce(rows)
    # rows that stay are no payload; an all-gather is not autoplan's and counts with all that it is handed
    assert [(call.name, call.payload_bytes) for call in counter.issued] == [
        ("allreduce_", 48),
        ("alltoall_base_", 0),
        ("allgather_", 16),
        ("broadcast_", 56),
        ("allreduce_", 40),
        ("barrier", 0),
    ]
    assert counter.payload_bytes == 160


def test_peak_of_a_program_worked_out_by_hand() -> None:
    x = torch.zeros(MIB // 4)
    weight = torch.ones(MIB // 4, requires_grad=True)
    with peak_memory(storage_bytes([x, weight])) as memory:
        a = x * weight  # + 1
        b = a.exp()  # + 2, and keeps b
        del a
        c = torch.cat([b, b, b])  # + 4: b and c live
        del c  # + 1
        b.sum().backward()
    assert memory.resident == 2 * MIB
    assert 4 * MIB <= memory.step < 4 * MIB + 4096
    assert memory.peak == memory.resident + memory.step


def test_temporaries_inside_an_op_count() -> None:
    keys = torch.arange(MIB // 8).flip(0)
    with peak_memory(storage_bytes([keys])) as memory:
        keys.unique()
    assert memory.step > 2 * MIB


def test_storages_that_tensors_share_count_once() -> None:
    whole = torch.zeros(10, 10)
    assert storage_bytes([whole, whole[2:], whole.t(), torch.zeros(3)]) == 412
