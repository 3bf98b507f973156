"""Names of axes of one type and of several, and what the positions in a tensor point into."""

import pytest

from autoplan.opgraph import (
    IndexInto,
    edge_axis,
    index_axis,
    is_edge_axis,
    is_index_axis,
    is_node_axis,
    listed_axis,
    node_axis,
    type_of_axis,
)

AXES = {
    node_axis(): ("node", None),
    node_axis("paper"): ("node", "paper"),
    edge_axis(): ("edge", None),
    edge_axis(attribute="pairs"): ("edge", None),
    edge_axis("author__writes__paper"): ("edge", "author__writes__paper"),
    edge_axis("a__to__b", "edge_label_index"): ("edge", "a__to__b"),
    index_axis("train_idx"): ("index", None),
    index_axis("train_idx", "paper"): ("index", "paper"),
    "graph": ("", None),
    "select(v3)": ("", None),
    "concat(node[a],node[b])": ("", None),
    "node[a]*3": ("", None),
}


def test_names():
    assert node_axis("paper") == "node[paper]"
    assert edge_axis("a__to__b", "edge_label_index") == "edge[a__to__b]:edge_label_index"
    assert index_axis("train_idx", "paper") == "index[paper]:train_idx"
    assert (node_axis(), edge_axis(attribute="pairs"), index_axis("idx")) == (
        "node",
        "edge:pairs",
        "index:idx",
    )


@pytest.mark.parametrize("name", AXES)
def test_kind_and_type_of_an_axis(name):
    kind, of = AXES[name]
    assert [is_node_axis(name), is_edge_axis(name), is_index_axis(name)] == [
        kind == each for each in ("node", "edge", "index")
    ]
    if kind:
        assert type_of_axis(name) == of


def test_lists_of_nodes():
    assert listed_axis("index:train_idx") == "node"
    assert listed_axis("index[paper]:train_idx") == "node[paper]"


def test_one_axis_holds_for_all_ends():
    shared = IndexInto(("node",), ("src", "dst"))
    assert shared == IndexInto(("node", "node"), ("src", "dst"))
    assert shared.axis == "node"
    apart = IndexInto(("node[a]", "node[b]"), ("src", "dst"))
    assert apart.axis is None
    assert apart.entries(slice(1, 2)) == IndexInto(("node[b]",), ("dst",))
    assert apart.entries(slice(None, None, -1)).axes == ("node[b]", "node[a]")
    assert apart.entries(slice(0, 1)).repeated(2) == IndexInto(("node[a]",), ("src", "src"))
    with pytest.raises(ValueError, match="3 axes for 2 ends"):
        IndexInto(("a", "b", "c"), ("src", "dst"))
