"""From a program to the blocks that stages are made of, and to their numbers.

Ops that no cut may separate (`stages.together`), and whatever lies on a way between them, are one block. More blocks than a
solver can use are merged: of neighbours in the order the cheapest pair, pairs within one module first, so that a cut falls
between modules where that costs nothing. Neighbours in an order where makers come before readers may always be merged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from autoplan.opgraph import OpGraph
from autoplan.search.stage_problem import Message, StageProblem, Unit
from autoplan.stages import reads, together, unknown_axes

Blocks = tuple[tuple[int, ...], ...]
"""Op indices by block, blocks in an order where makers come before readers."""


def atoms(graph: OpGraph, *, known: bool = False) -> Blocks:
    """The smallest blocks: in program order of their first op where readers allow it.

    Args:
        graph: the program.
        known: only tensors whose rows follow from the graph's may cross; makers and readers of others are one block.
    """
    import networkx as nx

    flow = nx.DiGraph()
    flow.add_nodes_from(op.index for op in graph.ops)
    maker: dict[str, int] = {}
    needed = reads(graph)
    for op in graph.ops:
        sources = dict.fromkeys((*(maker[n] for n in needed[op.index] if n in maker), *op.numbers))
        flow.add_edges_from((source, op.index) for source in sources if source != op.index)
        maker.update((name, op.index) for name in op.outputs)
    groups: list[Collection[int]] = list(together(graph))
    if known:
        groups += _unknown(graph, maker, needed)
    for group in groups:
        # a cycle through the group: it and all between is one strongly connected component
        members = sorted(group)
        flow.add_edges_from(zip(members, (*members[1:], members[0]), strict=True))
    parts = [tuple(sorted(part)) for part in nx.strongly_connected_components(flow)]
    contracted = nx.condensation(flow, scc=[set(part) for part in parts])
    order = nx.lexicographical_topological_sort(contracted, key=lambda number: parts[number][0])
    return tuple(parts[number] for number in order)


def _unknown(
    graph: OpGraph, maker: Mapping[str, int], needed: Mapping[int, Sequence[str]]
) -> list[list[int]]:
    """For each tensor whose rows only the data decide, the op that makes it and those that need it."""
    found: dict[str, list[int]] = {
        name: [op] for name, op in maker.items() if unknown_axes([graph.tensors[name]], graph.axes)
    }
    for op, names in needed.items():
        for name in names:
            if name in found:
                found[name].append(op)
    return [group for group in found.values() if len(group) > 1]


def merged(
    blocks: Blocks,
    seconds: Mapping[int, float],
    modules: Mapping[int, str],
    most: int,
    *,
    keep: Collection[int] = (),
) -> Blocks:
    """At most ``most`` blocks, or as few as the kept boundaries allow.

    Args:
        blocks: in order.
        seconds: op index -> what it costs.
        modules: op index -> its module.
        most: number of blocks to come down to.
        keep: op indices; the blocks that have them stay apart from the block before.
    """
    ops = [list(block) for block in blocks]
    cost = [sum(seconds[op] for op in block) for block in blocks]
    fixed = set(keep)
    starts = [any(op in fixed for op in block) for block in blocks]
    while len(ops) > most:
        pairs = sorted(
            (modules[ops[i][-1]] != modules[ops[i + 1][0]], cost[i] + cost[i + 1], i)
            for i in range(len(ops) - 1)
            if not starts[i + 1]
        )
        if not pairs:
            break
        # several pairs at a time, none of them neighbours; few enough that costs stay comparable
        chosen: dict[int, None] = {}
        for _, _, i in pairs[: max(1, min(len(ops) - most, len(pairs) // 4))]:
            if i - 1 not in chosen and i + 1 not in chosen:
                chosen[i] = None
        for i in sorted(chosen, reverse=True):
            ops[i] += ops.pop(i + 1)
            cost[i] += cost.pop(i + 1)
            starts.pop(i + 1)
    return tuple(tuple(block) for block in ops)


def coarser(problem: StageProblem, blocks: Blocks) -> StageProblem:
    """The problem over blocks that are runs of its own."""
    home: dict[int, int] = {}
    for number, ops in enumerate(blocks):
        home.update(dict.fromkeys(ops, number))
    to = [home[ops[0]] for ops in problem.blocks]

    def moved(old: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted({to[block] for block in old}))

    seconds = np.zeros((len(problem.seconds), len(blocks)))
    transient = np.zeros(len(blocks))
    for block, target in enumerate(to):
        seconds[:, target] += problem.seconds[:, block]
        transient[target] = max(transient[target], problem.transient[block])
    messages = []
    for message in problem.messages:
        maker = to[message.maker]
        others = tuple(block for block in moved(message.readers) if block != maker)
        if others:
            gradient = tuple(block for block in moved(message.gradient) if block != maker)
            messages.append(replace(message, maker=maker, readers=others, gradient=gradient))
    return replace(
        problem,
        blocks=blocks,
        seconds=seconds,
        messages=tuple(messages),
        units=tuple(Unit(unit.name, moved(unit.savers)) for unit in problem.units),
        held=tuple(replace(each, readers=moved(each.readers)) for each in problem.held),
        after=tuple(dict.fromkeys((to[a], to[b]) for a, b in problem.after if to[a] != to[b])),
        transient=transient,
    )


def number_reads(graph: OpGraph, blocks: Blocks) -> tuple[tuple[int, int], ...]:
    """(a, b): a block b that reads a Python number which an op of block a gave."""
    home = {op: number for number, ops in enumerate(blocks) for op in ops}
    pairs = ((home[n], home[op.index]) for op in graph.ops for n in op.numbers)
    return tuple(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))


def messages_of(
    graph: OpGraph,
    blocks: Blocks,
    sizes: Mapping[str, float],
    unit_of: Mapping[str, int],
    *,
    training: bool,
) -> tuple[Message, ...]:
    """Every tensor that an op of another block than its maker's reads.

    Args:
        graph: the program.
        blocks: in order.
        sizes: bytes of a tensor in one micro-batch.
        unit_of: tensor -> its storage's number.
        training: gradients go back.
    """
    home = {op: number for number, ops in enumerate(blocks) for op in ops}
    maker: dict[str, int] = {}
    readers: dict[str, dict[int, bool]] = {}
    needed = reads(graph)
    for op in graph.ops:
        block = home[op.index]
        for name in needed[op.index]:
            if name in maker and maker[name] != block:
                crosses = training and name in op.differentiates
                found = readers.setdefault(name, {})
                found[block] = found.get(block, False) or crosses
        maker.update((name, block) for name in op.outputs)
    return tuple(
        Message(
            name,
            maker[name],
            tuple(sorted(found)),
            sizes[name],
            tuple(sorted(block for block, crosses in found.items() if crosses)),
            unit_of.get(name),
        )
        for name, found in readers.items()
    )
