"""Every strategy, asked for in turn: planned, trained for a while, predicted and measured. Torch is imported on use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoplan.cli.output import say
from autoplan.errors import InfeasibleError
from autoplan.report.measured import Forced
from autoplan.report.units import count

if TYPE_CHECKING:
    from autoplan.api import Plan
    from autoplan.execute.train import TrainResult


@dataclass(frozen=True, slots=True)
class Subject:
    """What is planned and trained.

    Attributes:
        title: of the data, for people.
        model: makes the model, with equal weights on every call.
        data: a graph, or many.
        metrics: as of `Plan.train`.
        lr: learning rate.
        weight_decay: of the optimizer.
    """

    title: str
    model: Callable[[], Any]
    data: Any
    metrics: Mapping[str, Callable[..., Any]]
    lr: float = 0.01
    weight_decay: float = 0.0

    def plan(self, devices: str, strategy: str = "auto") -> Plan:
        """Raises AutoplanError as `autoplan.optimize` does."""
        from autoplan.api import optimize

        return optimize(self.model(), self.data, devices, strategy=strategy)

    def train(self, plan: Plan, epochs: int) -> TrainResult:
        """From the same weights and seed each time."""
        workers = count(len(plan.data.devices), "worker")
        say(f"training {count(epochs, 'epoch')} with strategy {plan.strategy} on {workers}")
        return plan.train(
            self.model(),
            self.data,
            epochs=epochs,
            lr=self.lr,
            seed=0,
            weight_decay=self.weight_decay,
            metrics=dict(self.metrics),
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """A strategy that was asked for: its plan, or the reason why there is none."""

    strategy: str
    plan: Plan | None
    reason: str | None

    def measured(self, run: TrainResult | None) -> Forced:
        """Its row, with what a run gave."""
        if self.plan is None or run is None:
            return Forced(self.strategy, reason=self.reason)
        return Forced(
            self.strategy,
            self.plan.data,
            None,
            run.step_seconds,
            run.peak_bytes,
            run.communication_bytes,
        )

    def document(self, run: TrainResult | None) -> dict[str, object]:
        """The same in JSON's types."""
        from autoplan.cli.run import training_document

        if self.plan is None or run is None:
            return {"strategy": self.strategy, "reason": self.reason}
        return {
            **training_document(self.plan.data, run),
            "strategy": self.strategy,
            "reason": None,
        }


def ask_for_each(subject: Subject, devices: str, chosen: Plan) -> list[Asked]:
    """Every family that the search knows, one after the other; ``chosen`` is what ``auto`` took."""
    from autoplan.search.result import FAMILIES

    found = []
    for strategy in FAMILIES:
        try:
            plan = chosen if chosen.strategy == strategy else subject.plan(devices, strategy)
        except InfeasibleError as error:
            found.append(Asked(strategy, None, str(error)))
        else:
            found.append(Asked(strategy, plan, None))
    return found
