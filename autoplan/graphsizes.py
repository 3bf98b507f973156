"""Sizes of public graphs. No torch.

Sources: the Open Graph Benchmark (Hu et al. 2020, "Open Graph Benchmark: Datasets for Machine Learning on Graphs") for
what begins with ogbn, with its official splits; the data set pages of PyTorch Geometric for
Reddit (Hamilton et al. 2017, "Inductive Representation Learning on Large Graphs") and Yelp (Zeng et al. 2020, "GraphSAINT").
"""

from __future__ import annotations

from autoplan.graphspec import GraphSpec

_OGB = "Open Graph Benchmark (Hu et al. 2020)"

PUBLIC: tuple[GraphSpec, ...] = (
    GraphSpec(
        name="Reddit",
        nodes=232_965,
        edges=114_615_892,
        features=602,
        classes=41,
        labelled=153_431 / 232_965,
        directed=False,
        source="torch_geometric.datasets.Reddit; Hamilton et al. 2017",
    ),
    GraphSpec(
        name="Yelp",
        nodes=716_847,
        edges=13_954_819,
        features=300,
        classes=100,
        multilabel=True,
        labelled=0.75,
        directed=False,
        source="torch_geometric.datasets.Yelp; Zeng et al. 2020",
    ),
    GraphSpec(
        name="ogbn-arxiv",
        nodes=169_343,
        edges=1_166_243,
        features=128,
        classes=40,
        labelled=90_941 / 169_343,
        source=_OGB,
    ),
    # 61,859,140 undirected edges, which the data set holds in both directions
    GraphSpec(
        name="ogbn-products",
        nodes=2_449_029,
        edges=2 * 61_859_140,
        features=100,
        classes=47,
        labelled=196_615 / 2_449_029,
        directed=False,
        source=_OGB,
    ),
    GraphSpec(
        name="ogbn-papers100M",
        nodes=111_059_956,
        edges=1_615_685_872,
        features=128,
        classes=172,
        labelled=1_207_179 / 111_059_956,
        source=_OGB,
    ),
    GraphSpec(
        name="ogbn-mag",
        nodes={
            "paper": 736_389,
            "author": 1_134_649,
            "institution": 8_740,
            "field_of_study": 59_965,
        },
        edges={
            ("author", "affiliated_with", "institution"): 1_043_998,
            ("author", "writes", "paper"): 7_145_660,
            ("paper", "cites", "paper"): 5_416_271,
            ("paper", "has_topic", "field_of_study"): 7_505_078,
        },
        features={"paper": 128},
        classes=349,
        target="paper",
        labelled=629_571 / 736_389,
        source=_OGB,
    ),
)
