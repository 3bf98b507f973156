"""The command behind `make accept`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.accept.report import ROOT
from benchmarks.accept.runner import accept, run_check, show_stored
from benchmarks.accept.store import Store


def main() -> int:
    """Returns 0 when every check passed, 1 when one failed, 2 for an issue without checks."""
    parser = argparse.ArgumentParser(prog="make accept", description=__doc__)
    parser.add_argument("--issue", type=int, help="without it, the stored results are listed")
    parser.add_argument("--only", nargs="*", default=[], help="names of the checks to run")
    parser.add_argument("--again", action="store_true", help="also run what has passed before")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--outcome", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    store = Store(ROOT / ".accept")
    if given.issue is None:
        show_stored(store)
        return 0
    if given.run is not None:
        run_check(given.issue, given.run, given.outcome)
        return 0
    try:
        return 0 if accept(given.issue, store, only=given.only, again=given.again) else 1
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
