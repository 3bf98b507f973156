"""Generated source: what it spells out, what it keeps in tables, when it frees values."""

from __future__ import annotations

import math
import pickle

import torch
import torch.nn.functional as F

from autoplan.program.codegen import ConstantTable, format_call, format_op, generate
from autoplan.program.ir import Expression, OpStep
from tests.trace.trapping import graph, program_of


def test_a_constant_table_survives_pickling() -> None:
    """A rank's program is sent to its worker as text and such a table."""
    table = ConstantTable()
    assert table.name(torch.ops.aten.mm.default) == "aten_mm"
    assert table.name(torch.ops.aten.add.Tensor) == "aten_add_Tensor"
    assert table.literal(torch.ones(2)).text == "c0.to(device, copy=True)"
    names = pickle.loads(pickle.dumps(table)).namespace()
    result = eval("aten_mm(c0.view(1, 2), c0.view(2, 1))", names)
    assert result.item() == 2


def test_literals() -> None:
    table = ConstantTable()
    values = (None, True, 3, -2.5, math.inf, "mean", torch.int64, torch.strided)
    texts = [table.literal(value).text for value in values]
    assert texts == [
        "None",
        "True",
        "3",
        "-2.5",
        "inf",
        "'mean'",
        "torch.int64",
        "torch.strided",
    ]
    assert table.literal(torch.device("cpu")).text == "device"
    assert table.literal(Expression("s3_0 // 2")).text == "s3_0 // 2"
    assert table.objects == {}


def test_arguments_can_be_replaced() -> None:
    _, program = program_of(lambda model, x, edge_index: model.linear(x).new_zeros(x.size(0), 3))
    (step,) = [s for s in program.steps if isinstance(s, OpStep) and "new_zeros" in str(s.func)]
    table = ConstantTable()
    size = next(
        argument
        for argument in step.args
        if isinstance(argument, Expression) and argument.text[0] == "s"
    )
    local = [Expression("rows") if argument is size else argument for argument in step.args]
    assert format_call(step, table, local).startswith(f"aten_new_zeros({step.args[0]}, [rows, 3]")
    assert format_op(step, table).startswith(f"{step.outs[0]} = aten_new_zeros(")


def test_devices_are_not_baked() -> None:
    def body(model, x, edge_index):
        noise = torch.rand(x.size(0), 8)
        return model.linear(x) + noise + torch.tensor([1.0, x.size(0)]).sum() + torch.ones(8)

    model, program = program_of(body)
    generated = generate(program)
    assert "cpu" not in generated.source
    model, program = program_of(lambda model, x, edge_index: x + torch.zeros(x.size(0), 1))
    inputs = [tensor.to("meta") for tensor in graph(131)]
    state = [slot.to("meta") for slot in (*model.parameters(), *model.buffers())]
    (output,) = generate(program).run(state, inputs, torch.device("meta"))
    assert output.device.type == "meta"
    assert output.shape == (131, 8)


def test_values_are_freed_after_their_last_use() -> None:
    _, program = program_of(lambda model, x, edge_index: F.relu(model.linear(x)) * 2)
    lines = [line.strip() for line in generate(program).source.splitlines()]
    products = [line for line in lines if "aten_relu" in line]
    (relu,) = products
    read = relu.split("(")[1].rstrip(")")
    assert lines[lines.index(relu) + 1] == f"del {read}"


def test_grad_mode_follows_the_recording() -> None:
    def body(model, x, edge_index):
        with torch.no_grad():
            gate = model.linear(x)
        return model.linear(x) * gate

    _, program = program_of(body)
    source = generate(program).source
    assert source.index("set_grad_enabled(False)") < source.index("set_grad_enabled(True)")
