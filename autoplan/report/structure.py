"""A graph's structure as tables of at most 100 columns. No torch."""

from __future__ import annotations

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from autoplan.graphstructure import DegreeStats, GraphStructure
from autoplan.opgraph import type_of_axis
from autoplan.report.names import Name
from autoplan.report.tables import METHODS, plain_table
from autoplan.report.units import count, decimal, digits, percent

DEGREES = (
    "p99: 99 of 100 nodes have no more; Gini: inequality, from 0 (all have equally many) to 1 (one has all); none: nodes "
    "without."
)
PARTITIONS = (
    "cut: edges between parts; balance: the fullest part over the mean; 1 hop: nodes of all parts, each with what one hop "
    "against the edges reaches, over the nodes of the graph."
)
SAMPLED = (
    "fan-outs: neighbours drawn for each node, hop by hop, from every relation; nodes, edges: mean of a batch that starts "
    "from so many seeds; at most: nodes of the largest batch."
)
"""What the columns of each table are."""


def structure(graph: GraphStructure) -> RenderableType:
    """Degrees, components, cuts and sampled neighbourhoods."""
    nodes = sum(graph.nodes.values())
    components = (
        f"{count(graph.components, 'connected component')}, the largest of {count(graph.largest, 'node')} of "
        f"{nodes:,}"
    )
    parts: list[RenderableType] = [_degrees(graph), Text(DEGREES), Text(components)]
    if graph.partitions:
        parts += [Text(""), _partitions(graph), Text(PARTITIONS)]
    if graph.neighbourhoods:
        parts += [Text(""), _neighbourhoods(graph), Text(SAMPLED)]
    return Stack(*parts)


def _degrees(graph: GraphStructure) -> Table:
    numbers = ("edges", "mean", "median", "p99", "max", "Gini", "none")
    table = plain_table("degree", "", *numbers, numbers=numbers)
    for axis, relation in graph.relations.items():
        name = type_of_axis(axis) or axis
        table.add_row(Name(name), "in", _count(relation.edges), *_degree(relation.incoming))
        table.add_row("", "out", "", *_degree(relation.outgoing))
    return table


def _degree(stats: DegreeStats) -> list[str]:
    return [
        digits(stats.mean),
        f"{stats.median:g}",
        f"{stats.p99:,.0f}",
        f"{stats.max:,}",
        f"{stats.gini:.2f}",
        _count(stats.without),
    ]


def _partitions(graph: GraphStructure) -> Table:
    """Growth: nodes of all parts with what their hops reach, over the nodes of the graph."""
    hops = max(len(each.reached) for each in graph.partitions)
    numbers = ("parts", "cut", "edge balance", "node balance")
    growth = tuple(f"{hop} hop{'s' if hop > 1 else ''}" for hop in range(1, hops))
    table = plain_table("partition", *numbers, *growth, numbers=(*numbers, *growth))
    for each in graph.partitions:
        table.add_row(
            METHODS.get(each.method, each.method),
            str(each.parts),
            percent(each.cut_share),
            f"{each.edge_balance:.2f}",
            f"{each.node_balance:.2f}",
            *(f"{factor:.2f} x" for factor in each.growth[1:]),
        )
    return table


def _neighbourhoods(graph: GraphStructure) -> Table:
    numbers = ("seeds", "nodes", "at most", "edges", "of all nodes")
    several = len(graph.nodes) > 1
    table = plain_table(
        "sampled, fan-outs", *(["seeds of"] if several else []), *numbers, numbers=numbers
    )
    total = sum(graph.nodes.values())
    for each in graph.neighbourhoods:
        table.add_row(
            ", ".join("all" if n < 0 else str(n) for n in each.fan_outs),
            *([Name(type_of_axis(each.axis) or each.axis)] if several else []),
            f"{each.seeds:,}",
            _count(each.nodes[-1]),
            _count(each.most),
            _count(each.edges),
            percent(each.nodes[-1] / total) if total else "",
        )
    return table


def _count(number: float) -> str:
    """A number of nodes or edges: whole up to a million, then with its unit."""
    return f"{number:,.0f}" if number < 1e6 else decimal(number)
