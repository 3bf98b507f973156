"""The process of one side: takes ``step``, ``probe`` or ``stop`` a line on stdin, answers with a line of JSON on stdout."""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from typing import Any

THREADS = 2


def main(side: str, model: str, graph_name: str) -> None:
    """Says ``ready`` when everything is set up, then follows commands until ``stop`` or the end of stdin."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print is no answer

    def answer(**content: Any) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    import torch

    torch.set_num_threads(THREADS)
    from benchmarks.steps.graphs import GRAPHS
    from benchmarks.steps.sides import steps
    from benchmarks.steps.timing import Clock, probe

    warnings.simplefilter("ignore")

    started = False

    def wait() -> bool:
        nonlocal started
        if not started:
            started = True
            answer(ready=True)
        for line in sys.stdin:
            command = line.strip()
            if command == "probe":
                answer(seconds=probe())
            else:
                return command == "step"
        return False

    try:
        steps(
            side, model, GRAPHS[graph_name](), Clock(wait, lambda seconds: answer(seconds=seconds))
        )
    except LookupError as error:
        answer(missing=str(error))
    except Exception:
        answer(failed=traceback.format_exc().strip())


if __name__ == "__main__":
    main(*sys.argv[1:])
