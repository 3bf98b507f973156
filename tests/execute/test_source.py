from __future__ import annotations

from autoplan.execute.source import Body, axis_text, variable


def test_names():
    assert variable("v5.1", "O") == "v5_1_O"
    assert axis_text("concat(select(v12.1),node)") == "concat_select_v12_1_node"
    assert axis_text("edge:other") == "edge_other"


def test_values_are_freed_after_their_last_use_and_sizes_are_not():
    body = Body()
    body.add_first("v1_R = inputs['x']", "v1_R")
    body.add("v2_R = f(v1_R)", "v2_R", grad=True)
    body.add("v3_R = g(v2_R, v1_R)", "v3_R", grad=False)
    body.add("v4_R = h(v3_R)", "v4_R", grad=True)
    body.add_after("v2_R", "rows_a_R = v2_R.size(0)")
    source = body.render("def step(inputs):", "[v3_R, rows_a_R]", grad=True)
    assert source.splitlines()[1:] == [
        "    torch.set_grad_enabled(True)",
        "    v1_R = inputs['x']",
        "    v2_R = f(v1_R)",
        "    rows_a_R = v2_R.size(0)",
        "    torch.set_grad_enabled(False)",
        "    v3_R = g(v2_R, v1_R)",
        "    del v2_R, v1_R",
        "    torch.set_grad_enabled(True)",
        "    v4_R = h(v3_R)",
        "    del v4_R",
        "    return [v3_R, rows_a_R]",
    ]


def test_names_that_only_look_like_variables_are_left_alone():
    body = Body()
    body.add("v1_R = f()", "v1_R")
    body.add("if bad: raise GuardError('keys_of in v9_O')")
    assert "del keys_of" not in body.render("def step():", "[]", grad=True)
