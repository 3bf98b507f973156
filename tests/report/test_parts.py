from __future__ import annotations

from autoplan.report.parts import part_document
from tests.report.plans import KIB, data_plan, single_plan


def test_candidates_carry_price_or_reason() -> None:
    rows = part_document(data_plan(), "candidates")["candidates"]
    assert [(row["name"], row["step_seconds"], row["reason"]) for row in rows] == [
        ("single", 1.2e-3, None),
        ("data on 2", 2.5e-3, None),
        ("model:stages", None, "not in this version"),
    ]


def test_memory_has_a_sheet_for_every_rank_with_its_peak() -> None:
    sheets = part_document(data_plan(ranks=3), "memory")["memory"]
    assert [(sheet["rank"], sheet["peak"]) for sheet in sheets] == [
        (rank, 196 * KIB) for rank in range(3)
    ]


def test_communication_has_the_total_and_the_transitions() -> None:
    part = part_document(data_plan(), "communication")["communication"]
    assert part["bytes_per_rank"] == [9 * KIB, 9 * KIB]
    (transition,) = part["transitions"]
    assert (transition["ranks"], transition["exchange"]) == ([0, 1], "halo_exchange")
    assert part_document(single_plan(), "communication")["communication"]["transitions"] == []


def test_states_are_counted_by_module() -> None:
    (stage,) = part_document(data_plan(), "states")["states"]
    assert stage["modules"] == [
        {"module": "conv1.lin", "ops": 1, "states": {"O": 1}},
        {"module": "conv1", "ops": 2, "states": {"H": 1, "O": 1}},
        {"module": "", "ops": 1, "states": {"R": 1}},
    ]
