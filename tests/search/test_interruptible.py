from __future__ import annotations

import subprocess
import sys
import time

SOLVE = """
import os, signal, sys, threading, time
import highspy, numpy as np
from autoplan.search.interruptible import run_interruptible

def model(nodes):
    rng = np.random.default_rng(0)
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("random_seed", 0)
    highs.setOptionValue("mip_max_nodes", nodes)
    variables = [highs.addBinary(obj=-float(rng.integers(10, 100))) for _ in range(60)]
    for _ in range(40):
        weights = rng.integers(5, 60, 60)
        left = sum(float(w) * x for w, x in zip(weights, variables))
        highs.addConstr(left <= float(weights.sum() * 0.3))
    return highs

plain, watched = model(3), model(3)
plain.run()
run_interruptible(watched)
assert plain.getInfo().objective_function_value == watched.getInfo().objective_function_value
assert list(plain.getSolution().col_value) == list(watched.getSolution().col_value)

endless = model(10**9)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
started = time.monotonic()
try:
    run_interruptible(endless)
except KeyboardInterrupt:
    print(f"interrupted {time.monotonic() - started:.3f}")
time.sleep(0.5)
assert not [t for t in threading.enumerate() if t.name == "autoplan-solver"]
"""


def test_ctrl_c_stops_the_solver_and_answers_are_the_same() -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", SOLVE], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split("interrupted")[1]) < 4
    assert time.monotonic() - started < 50
