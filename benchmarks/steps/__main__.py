"""The command behind ``make bench-steps``: one training step of plain PyG against autoplan, on one device.

Beside them run the best version of each model that is written by hand with torch alone, and its ceiling: the dense linear
algebra that every exact version has to do. Raw seconds go to benchmarks/results/steps.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from rich.console import Console

from benchmarks.steps.cases import selected
from benchmarks.steps.processes import machine_lock, others_computing
from benchmarks.steps.protocol import MOST_ROUNDS, ROUNDS, SIDES
from benchmarks.steps.results import RESULTS, as_json, store, table
from benchmarks.steps.run_case import Effort, clear_progress, run_case

_BUSY = 0.5
"""Load average above which times are taken with a warning."""
_WIDTH = 132


def main() -> int:
    """Returns 0 when no gate fails, 1 when one does or is not settled, 2 for names that there are not."""
    parser = argparse.ArgumentParser(prog="make bench-steps", description=__doc__)
    parser.add_argument("--model", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--graph", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--side", action="append", choices=SIDES, help="beside plain and autoplan")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="at least so many (default 15)")
    parser.add_argument("--most", type=int, default=MOST_ROUNDS, help="at most so many")
    parser.add_argument("--csv", type=Path, default=RESULTS / "steps.csv", help="raw seconds")
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    given = parser.parse_args()
    try:
        cases = selected(given.model, given.graph)
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    wanted = {"plain", "autoplan", *(given.side or SIDES)}
    effort = Effort(
        tuple(side for side in SIDES if side in wanted), given.rounds, max(given.rounds, given.most)
    )
    with machine_lock():
        load = others_computing()
        if load > _BUSY:
            print(
                f"others compute on this machine (load average {load:.1f} of {os.cpu_count()} cores): "
                "intervals will be wide and ratios may be off",
                file=sys.stderr,
            )
        outcomes = []
        started = time.monotonic()
        for case in cases:
            outcomes.append(run_case(case, effort))
            store(given.csv, outcomes[-1])
            clear_progress()
    if given.json:
        content = {
            "load_average_before": load,
            "seconds": round(time.monotonic() - started, 1),
            "cases": [as_json(outcome) for outcome in outcomes],
        }
        print(json.dumps(content, indent=2))
    else:
        console = Console(width=None if sys.stdout.isatty() else _WIDTH)
        console.print(table(outcomes))
        for outcome in outcomes:
            for note in outcome.notes:
                first = note.strip().splitlines()[-1]
                console.print(
                    f"{outcome.case.model} on {outcome.case.graph}: {first}", markup=False
                )
        console.print(f"load average before: {load:.1f}; raw seconds: {given.csv}", markup=False)
    verdicts = {outcome.gate.verdict for outcome in outcomes}
    return 1 if verdicts & {"fails", "not settled"} else 0


if __name__ == "__main__":
    sys.exit(main())
