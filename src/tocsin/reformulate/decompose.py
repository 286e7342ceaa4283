"""Joins of many tables as semijoins of two: which neighbour filters which table, and what that costs.

A join over n tables is kept by n *forms*, one for each table: its rows, filtered by one neighbour. The client
joins what it holds. Every row of the join is in each semijoin, so the content is exact whichever neighbour is
chosen; how many rows are sent is not the same:

    R --0-- S --1-- T        R: by S.   S: by R or by T.   T: by S.      forms: R^S, S^R, S^T, T^S
            |
            2                a join of R, S, T with S by T: {R: 0, S: 1, T: 1}, the edges over which tables
            U                are filtered

Nodes of the graph are *places* of tables: a table that is joined with itself has two. Edges are equalities of
one or several columns.

Subscriptions of one form share an index, whatever else they join. Cost is additive over forms, so the
greedy choice, for each place the cheapest neighbour that the join has, is the best of all.

>>> graph = JoinGraph(("r", "s", "t"), ((0, 1), (1, 2)))
>>> [graph.name(form) for form in graph.forms]
['r^s', 's^r', 's^t', 't^s']
>>> shapes = {"r": TableShape(joining=10), "s": TableShape(joining=70), "t": TableShape(joining=70)}
>>> costs = parametric_costs(graph, shapes)
>>> greedy(graph, [frozenset([0, 1]), frozenset([0])], costs)  # s is filtered by t where there is one
[{0: 0, 1: 1, 2: 1}, {0: 0, 1: 0}]

J08, section 4 and appendices D and E; two formulas of the cost are lost from the scan and derived again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import NamedTuple

__all__ = [
    *("Decomposition", "SemijoinForm", "JoinGraph", "Signature", "TableShape", "decompositions", "greedy"),
    *("parametric_costs", "random_decomposition", "simulated_costs", "total_cost"),
]

Signature = frozenset[int]
"""A join: the edges it uses, connected."""
Decomposition = dict[int, int]
"""By place of a join, the edge over which it is filtered."""


class SemijoinForm(NamedTuple):
    """Rows of a place, filtered by its neighbour over an edge."""

    base: int
    edge: int


@dataclass(frozen=True)
class JoinGraph:
    """Places, each with the name of its table, and edges between them."""

    tables: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        for edge in self.edges:
            if len(set(edge)) < 2 or not all(0 <= place < len(self.tables) for place in edge):
                raise ValueError(f"an edge joins two of {len(self.tables)} places, not {edge}")
        if len(self.edges) > 63:
            raise ValueError(f"a graph has at most 63 edges, not {len(self.edges)}")

    @property
    def forms(self) -> list[SemijoinForm]:
        """All forms; those of edge e are number 2 e and 2 e + 1."""
        return [SemijoinForm(base, edge) for edge, ends in enumerate(self.edges) for base in ends]

    def number(self, form: SemijoinForm) -> int:
        """The number of a form, which is the `side` of its messages."""
        return 2 * form.edge + self.edges[form.edge].index(form.base)

    def other(self, form: SemijoinForm) -> int:
        """The filtering place."""
        one, two = self.edges[form.edge]
        return two if form.base == one else one

    def name(self, form: SemijoinForm) -> str:
        return f"{self.tables[form.base]}^{self.tables[self.other(form)]}"

    def places(self, signature: Signature) -> list[int]:
        """The places of a join."""
        return sorted({place for edge in signature for place in self.edges[edge]})

    def choices(self, signature: Signature) -> dict[int, list[int]]:
        """By place, the edges over which it may be filtered. A join that is not connected is rejected."""
        if not signature or not all(0 <= edge < len(self.edges) for edge in signature):
            raise ValueError(f"a join has edges of the graph, not {sorted(signature)}")
        places = self.places(signature)
        reached, rest = {places[0]}, set(signature)
        while touched := [edge for edge in rest if reached & set(self.edges[edge])]:
            reached |= {place for edge in touched for place in self.edges[edge]}
            rest -= set(touched)
        if rest:
            raise ValueError(f"a join is connected, not {sorted(signature)}")
        return {place: [e for e in sorted(signature) if place in self.edges[e]] for place in places}


# -- choosing --------------------------------------------------------------------------------------


def greedy(
    graph: JoinGraph, signatures: Sequence[Signature], costs: Mapping[SemijoinForm, float]
) -> list[Decomposition]:
    """For each place, its forms by ascending cost: each goes to all joins that have it and none yet."""
    out: list[Decomposition] = [{} for _ in signatures]
    choices = [graph.choices(signature) for signature in signatures]
    for place in range(len(graph.tables)):
        edges = [edge for edge, ends in enumerate(graph.edges) if place in ends]
        for edge in sorted(edges, key=lambda edge: costs[SemijoinForm(place, edge)]):
            for chosen, choice in zip(out, choices, strict=True):
                if edge in choice.get(place, ()):
                    chosen.setdefault(place, edge)
    return out


def random_decomposition(graph: JoinGraph, signature: Signature, random: Random) -> Decomposition:
    """Any of them, for comparison."""
    return {place: random.choice(edges) for place, edges in graph.choices(signature).items()}


def decompositions(graph: JoinGraph, signature: Signature) -> Iterator[Decomposition]:
    """All of them."""
    choices = graph.choices(signature)
    for edges in product(*choices.values()):
        yield dict(zip(choices, edges, strict=True))


def total_cost(chosen: Iterable[Decomposition], costs: Mapping[SemijoinForm, float]) -> float:
    """The cost of subscriptions, one decomposition each."""
    return sum(costs[SemijoinForm(place, edge)] for one in chosen for place, edge in one.items())


# -- cost ------------------------------------------------------------------------------------------


class TableShape(NamedTuple):
    """Rows of one join key, changes of the table, bytes of a row; of the latter only the ratios matter."""

    joining: float
    rate: float = 1.0
    row_bytes: float = 1.0


def parametric_costs(graph: JoinGraph, shapes: Mapping[str, TableShape]) -> dict[SemijoinForm, float]:
    """The share of subscriptions that a change reaches, if ranges and values are uniform, times bytes.

    A range holds a value with probability 1/3, one of j values with j / (j + 2), and only the last of j + 1
    with 2 / ((j + 2) (j + 3)). A change of the base reaches those that hold it and have a partner; one of the
    filtering table exposes rows of the base.
    """
    out = {}
    for form in graph.forms:
        base, other = shapes[graph.tables[form.base]], shapes[graph.tables[graph.other(form)]]
        j = other.joining
        own = base.rate / 3 * j / (j + 2)
        exposed = other.rate * base.joining / 3 * 2 / ((j + 2) * (j + 3))
        out[form] = base.row_bytes * (own + exposed)
    return out


def simulated_costs(
    graph: JoinGraph, signatures: Sequence[Signature], measure: Callable[[SemijoinForm, list[int]], float]
) -> dict[SemijoinForm, float]:
    """The measured cost of each form, per subscription, if all those use it that could.

    `measure` gets a form and the subscriptions (numbers in `signatures`) that could use it, and returns the
    cost of describing and delivering a sample of changes to them. Infinite for a form that no join has.
    """
    out = {}
    for form in graph.forms:
        users = [at for at, signature in enumerate(signatures) if form.edge in signature]
        out[form] = measure(form, users) / len(users) if users else float("inf")
    return out
