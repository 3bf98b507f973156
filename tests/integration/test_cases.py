"""The shared cases (real bug reports with the right answer) through the public surface."""

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest
import torch

import autoplan

CASES = Path(
    os.environ.get("AUTOPLAN_CASES", Path(__file__).parents[2].parent / "shared" / "cases")
)


def case(name: str) -> ModuleType:
    found = sorted(CASES.glob(f"{name}_*.py"))
    if not found:
        pytest.skip(f"the shared case {name} is not beside this checkout (set AUTOPLAN_CASES)")
    spec = importlib.util.spec_from_file_location(name, found[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # the case's own
@pytest.mark.parametrize("devices", [["cpu", "cpu"], "3xcpu"])
def test_h01_uneven_train_nodes(devices) -> None:
    h01 = case("h01")
    b = h01.build()
    plan = autoplan.optimize(b["model"], b["graph"], devices, loss=b["loss"], strategy="data")

    step = plan.step(b["model"], b["graph"])

    h01.check({"loss": float(step.loss), "grads": step.gradients}, h01.reference())


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # the case's own
def test_h02_cross_partition_edges() -> None:
    h02 = case("h02")
    b = h02.build()
    plan = autoplan.optimize(b["model"], b["graph"], h02.DEVICES, loss=b["loss"], strategy="data")

    step = plan.step(b["model"], b["graph"])

    h02.check({"out": step.outputs, "loss": float(step.loss)}, h02.reference())
    predicted = plan.predict(b["model"], b["graph"])
    h02.check({"out": predicted, "loss": float(step.loss)}, h02.reference())


def test_h03_functional_dropout_eval() -> None:
    h03 = case("h03")
    b = h03.build()
    model, graph = b["model"].train(), b["graph"]
    plan = autoplan.optimize(model, graph, h03.DEVICES)

    def call() -> torch.Tensor:
        if model.training:
            return plan.step(model, graph, train=True).outputs
        return plan.predict(model, graph)

    h03.check(h03._observe(call, model), h03.reference())


@pytest.mark.parametrize("strategy", ["single", "data"])
def test_h09_tied_weights(strategy: str) -> None:
    h09 = case("h09")
    b = h09.build()
    model, graph = b["model"], b["graph"]
    plan = autoplan.optimize(
        model, graph, h09.DEVICES, loss=b["loss"], strategy=strategy, optimizer="sgd"
    )
    step = plan.step(model, graph)
    for name, parameter in model.named_parameters():
        parameter.grad = step.gradients[name]

    trained = plan.train(model, graph, epochs=1, lr=0.5, progress=False)

    state = model.state_dict()
    h09.check(
        {
            "loss": trained.losses[0],
            "grads": step.gradients,
            "enc": state["enc.weight"],
            "dec": state["dec.weight"],
            "keys": sorted(state),
            "unique_param_bytes": int(plan.stages[0].memory[0].weights),
        },
        h09.reference(),
    )


@pytest.mark.parametrize("train", [False, True])
def test_h10_buffers_and_root_parameters(train: bool) -> None:
    h10 = case("h10")
    b = h10.build()
    model, graph = b["model"], b["graph"]
    plan = autoplan.optimize(model, graph, h10.DEVICES)

    out = plan.step(model, graph, train=True).outputs if train else plan.predict(model, graph)

    stage = plan.stages[0]
    h10.check(
        {
            "out": out,
            "placed": sorted([*stage.parameters, *stage.buffers]),
            "reported": list(stage.attributes),
        },
        h10.reference(),
    )
