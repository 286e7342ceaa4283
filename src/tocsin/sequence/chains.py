"""The tree of steps: sequences that begin alike share nodes.

    a.ok = FALSE ─► b.ok = FALSE ─► c.ok = TRUE      subscriptions 1, 2 (of any time span)
                 └► b.ok = TRUE                      subscription 3

A node is a step after those above it: a stream, the columns of the key, and conditions. Each stream has an
index over the conditions of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tocsin.language.algebra import Query
from tocsin.language.rewrite import NormalForm
from tocsin.language.sequences import key_of
from tocsin.language.shape import Plan
from tocsin.match.base import unpack
from tocsin.match.index import Auto
from tocsin.match.nested import match_computed
from tocsin.model.columns import Index, Rows, longer
from tocsin.model.schema import Type
from tocsin.predicate.compile import flatten
from tocsin.sequence._kernels import Nodes

__all__ = ["StepKey", "StepTree", "key_types", "path_of"]


class StepKey(NamedTuple):
    """What makes a node: the one before, the stream, its key columns, the conditions."""

    parent: int
    types: tuple[Type, ...]  # of the key
    stream: str
    columns: tuple[str, ...]
    filter: NormalForm

    def __str__(self) -> str:
        return f"{self.stream} ({', '.join(self.columns)}) {self.filter}"


def key_types(query: Query) -> tuple[Type, ...]:
    """The types of a sequence's key."""
    found = key_of(query)
    assert found is not None
    first = query.tables[0].alias
    types = {c.name: c.type for j in query.joins for c in (j.left, j.right) if c.relation == first}
    return tuple(type for name in found[0] if (type := types[name]) is not None)


def path_of(plan: Plan) -> list[StepKey]:
    """The steps of a plan, without their parents."""
    columns, types = key_of(plan.query), key_types(plan.query)
    assert columns is not None
    steps = zip(plan.query.tables, columns, plan.filters, strict=True)
    return [StepKey(-1, types, table.name, own, form) for table, own, form in steps]


class StepTree:
    """Nodes by number; what ends and continues at each."""

    def __init__(self) -> None:
        self.numbers: dict[StepKey, int] = {}
        self.steps: dict[int, StepKey] = {}
        self._children: dict[int, int] = {}  # how many nodes follow
        self.users: dict[int, dict[int, int]] = {}  # by node where sequences end: slots, with their span
        self.indexes: dict[str, Auto] = {}  # by stream
        self._free: list[int] = []
        none = np.empty(0, np.int64)
        self.nodes = Nodes(none, none, none, np.empty(0, np.bool_), np.empty(0, np.bool_))

    def add(self, slot: int, plan: Plan) -> int:
        """Enter a sequence; the node where it ends."""
        node, span = -1, plan.query.within or 0
        for depth, step in enumerate(path_of(plan)):
            node = self._child(step._replace(parent=node), depth)
            self.nodes.span[node] = max(self.nodes.span[node], span)
        self.users.setdefault(node, {})[slot] = span
        self.nodes.ends[node] = True
        return node

    def _child(self, step: StepKey, depth: int) -> int:
        if step in self.numbers:
            return self.numbers[step]
        node = self._free.pop() if self._free else len(self.steps)
        if node >= len(self.nodes.parent):
            size = max(64, 2 * len(self.nodes.parent))
            parts: Any = self.nodes
            self.nodes = Nodes(*(longer(part, size) for part in parts))
        self.numbers[step], self.steps[node], self._children[node] = node, step, 0
        self.nodes.parent[node], self.nodes.depth[node], self.nodes.span[node] = step.parent, depth, 0
        self.nodes.ends[node] = self.nodes.continues[node] = False
        if step.parent >= 0:
            self._children[step.parent] += 1
            self.nodes.continues[step.parent] = True
        self.indexes.setdefault(step.stream, Auto()).add(np.array([node]), flatten([step.filter]))
        return node

    def remove(self, slot: int, node: int) -> list[int]:
        """Remove a sequence that ends at a node; the nodes that are gone."""
        del self.users[node][slot]
        if not self.users[node]:
            del self.users[node]
            self.nodes.ends[node] = False
        gone = []
        while node >= 0 and not self._children[node] and node not in self.users:
            step = self.steps.pop(node)
            del self.numbers[step], self._children[node]
            index = self.indexes[step.stream]
            index.remove(np.array([node]))
            if not any(other.stream == step.stream for other in self.steps.values()):
                del self.indexes[step.stream]
            gone.append(node)
            self._free.append(node)
            node = step.parent
            if node >= 0:
                self._children[node] -= 1
                self.nodes.continues[node] = self._children[node] > 0
        return gone

    def matches(self, stream: str, rows: Rows) -> tuple[Index, Index]:
        """Pairs (node, row) of events that satisfy the conditions of nodes."""
        node, row = unpack(match_computed(self.indexes[stream], rows))
        return node.astype(np.int64), row.astype(np.int64)

    def path(self, node: int) -> Iterator[int]:
        """The nodes of a sequence, from its end to its beginning."""
        while node >= 0:
            yield node
            node = self.steps[node].parent

    def name(self, node: int) -> str:
        """A text that stands for a node and those before it."""
        return " > ".join(str(self.steps[one]) for one in reversed(list(self.path(node))))

    def _check(self) -> None:
        assert {n: key for key, n in self.numbers.items()} == self.steps
        for node, step in self.steps.items():
            assert self.nodes.ends[node] == (node in self.users)
            assert self.nodes.continues[node] == (self._children[node] > 0)
            assert self._children[node] == sum(s.parent == node for s in self.steps.values())
            assert step.parent == self.nodes.parent[node]
        for stream, index in self.indexes.items():
            index._check()
            assert index.stats()["subscriptions"] == sum(s.stream == stream for s in self.steps.values())
