"""One trace at a time in a process: stand-ins, hooks that every module passes, and random state belong to all threads."""

from __future__ import annotations

import threading

EXCLUSIVE = threading.RLock()
"""Held while the process's own state is changed for a trace, a comparison or a seeded pass, until it is put back."""
