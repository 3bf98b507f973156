"""Every error that autoplan raises on purpose.

    AutoplanError
    ├── TraceError        the model, its loss or its graph cannot be recorded
    │   └── GuardError    a decision recorded from the samples comes out differently on this input
    ├── DeviceError       a device string, profile or cluster that does not exist or cannot run here
    ├── InfeasibleError   no plan satisfies memory, strategy or user constraints
    ├── PlanError         a plan used with something it was not made for, or a call that a plan cannot serve
    ├── PluginError       a plugin that fails to load or yields nonsense
    └── ExecutionError    a worker failed; carries its rank and its own traceback

A message says what, with names and numbers, and what to do.
"""


class AutoplanError(Exception):
    """Root of the tree; the command line prints its message and exits with 2 (1 for a failed check)."""


class TraceError(AutoplanError):
    """The model, its loss or its graph cannot be recorded."""


class GuardError(TraceError):
    """A decision recorded from the samples comes out differently on this input."""


class DeviceError(AutoplanError):
    """A device string, profile or cluster that does not exist or cannot run here."""


class InfeasibleError(AutoplanError):
    """No plan satisfies memory, strategy or user constraints."""


class PlanError(AutoplanError):
    """A plan used with something it was not made for, or a call that a plan cannot serve."""


class PluginError(AutoplanError):
    """A plugin that fails to load or yields nonsense."""


class ExecutionError(AutoplanError):
    """A worker failed.

    Attributes:
        rank: the rank of the first worker that failed, or None when it is not known.
        worker_traceback: the traceback as that worker printed it.
    """

    def __init__(
        self, message: str, *, rank: int | None = None, worker_traceback: str = ""
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.worker_traceback = worker_traceback
