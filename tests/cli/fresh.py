"""Commands in a process of their own."""

from __future__ import annotations

import subprocess
import sys


def without_torch(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs a command in a fresh process, which fails when torch was imported or the exit code is another."""
    program = (
        "import sys\n"
        "from autoplan.cli.main import main\n"
        f"try:\n    main({list(arguments)!r})\n"
        f"except SystemExit as ended:\n    assert (ended.code or 0) == {code}, ended.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
