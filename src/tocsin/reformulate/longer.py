"""Semijoins with everything else: a row is sent only if it is in the join of all tables. For comparison.

Each table is a base, and taking it out of the join leaves *remainders*, connected parts. A row of the base is
in the join if its subscription selects it and, of each remainder, some combination of rows that join with it:

    R -- S -- T      base S: remainders {R} and {T}.    base R: {S, T}, whose combinations are points (s, t)

| change of t                   | sent                                                                      |
| ----------------------------- | ------------------------------------------------------------------------- |
| as base                       | ROW or GONE to boxes that hold t, and a point of each remainder           |
| in a remainder of base row r  | EXPOSE or GONE of r to boxes that hold r, a point of each other remainder, |
|                               | a point with t, and none of the points without t                          |

Nothing is sent that the binary semijoins of `multiway.py` would send in vain, but the combinations have to be
enumerated at every change, and regions have a box for every choice of them: for three or four tables, and
not in the engine. An update is a delete and an insert, at one seq.

J08, appendix F.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tocsin.model.message import MessageKind, Messages, Rectangle, quadrant
from tocsin.reformulate.contents import JoinRow, is_null
from tocsin.reformulate.decompose import JoinGraph
from tocsin.reformulate.envelope import boxes_without, envelope, messages_of

__all__ = ["LongerSemijoins"]

Rows = list[dict[int, JoinRow]]
"""By place, rows by id."""
_Head = tuple[MessageKind, int, int, int, list[tuple[Rectangle, ...]]]


class LongerSemijoins:
    """The join of all places of a tree; `side` of a message is a place, and regions have a plane by place."""

    def __init__(self, graph: JoinGraph) -> None:
        if len(graph.edges) != len(graph.tables) - 1 or len(set(graph.tables)) < len(graph.tables):
            raise ValueError("longer semijoins are for trees of different tables")
        graph.choices(frozenset(range(len(graph.edges))))
        self.graph = graph
        self.rows: Rows = [{} for _ in graph.tables]

    def describe(self, place: int, row: int, new: JoinRow | None, seq: int) -> Messages:
        """The messages of one change; the table then has it."""
        heads: list[_Head] = []
        old = self.rows[place].get(row)
        if old is not None:
            heads += self._heads(place, row, MessageKind.GONE)
            del self.rows[place][row]
        if new is not None:
            self.rows[place][row] = new
            heads += self._heads(place, row, MessageKind.ROW)
        return messages_of(seq, [head for head in heads if head[4]], len(self.graph.tables))

    def _heads(self, place: int, row: int, kind: MessageKind) -> Iterator[_Head]:
        """What a row that is there means to all bases, before it goes or after it has come."""
        body = self.rows[place][row]
        if body.value is None:
            return
        yield kind, place, 0, row, self._boxes(place, body, {})
        kind = MessageKind.EXPOSE if kind == MessageKind.ROW else kind
        for base in range(len(self.graph.tables)):
            if base == place:
                continue
            edge, part = next((e, part) for e, part in self._remainders(base) if place in part)
            others = [p for p in range(len(self.graph.tables)) if p in part]
            for number, other in self.rows[base].items():
                if other.value is None:
                    continue
                points = self._points(other, edge, part)
                fresh = {tuple(r[p][1] for p in others) for r in points if r[place][0] == row}
                rest = {tuple(r[p][1] for p in others) for r in points if r[place][0] != row}
                boxes = [dict(zip(others, box, strict=True)) for box in _first_with(fresh - rest, rest)]
                yield kind, base, 0, number, self._boxes(base, other, {edge: boxes})

    def _boxes(
        self, base: int, body: JoinRow, given: dict[int, list[dict[int, Rectangle]]]
    ) -> list[tuple[Rectangle, ...]]:
        """Boxes that hold a base row and a point of each remainder, or what is given for one over an edge."""
        assert body.value is not None
        choices: list[list[dict[int, Rectangle]]] = [[{base: quadrant(body.value)}]]
        for edge, part in self._remainders(base):
            if edge in given:
                choices.append(given[edge])
                continue
            points = {
                tuple(sorted((p, value) for p, (_, value) in r.items()))
                for r in self._points(body, edge, part)
            }
            choices.append([{p: quadrant(value) for p, value in point} for point in sorted(points)])
        out = []
        for chosen in product(*choices):
            box = {place: rectangle for one in chosen for place, rectangle in one.items()}
            out.append(tuple(box[place] for place in range(len(self.graph.tables))))
        return out

    def _remainders(self, base: int) -> Iterator[tuple[int, set[int]]]:
        """The connected parts without a base, each with the edge that joins it."""
        for edge, ends in enumerate(self.graph.edges):
            if base not in ends:
                continue
            part = {ends[0] if ends[1] == base else ends[1]}
            while True:
                near = {p for e in self.graph.edges if base not in e and part & set(e) for p in e}
                if near <= part:
                    break
                part |= near
            yield edge, part

    def _points(self, body: JoinRow, edge: int, part: set[int]) -> list[dict[int, tuple[int, int]]]:
        """Combinations of rows of a part that join with a row over an edge: id and value by place."""
        if is_null(body.keys[edge]):
            return []
        start = next(place for place in self.graph.edges[edge] if place in part)
        joined = [{start: row} for row, r in self.rows[start].items() if r.keys[edge] == body.keys[edge]]
        rest, done = [e for e, ends in enumerate(self.graph.edges) if set(ends) <= part], {start}
        while rest:
            now = next(e for e in rest if done & set(self.graph.edges[e]))
            rest.remove(now)
            one, two = self.graph.edges[now]
            here, there = (one, two) if one in done else (two, one)
            done.add(there)
            joined = [
                {**r, there: row}
                for r in joined
                for row, other in self.rows[there].items()
                if not is_null(other.keys[now]) and other.keys[now] == self.rows[here][r[here]].keys[now]
            ]
        return [found for r in joined if (found := self._valued(r)) is not None]

    def _valued(self, rows: dict[int, int]) -> dict[int, tuple[int, int]] | None:
        """Ids with values; None if a value is NULL."""
        out = {}
        for place, row in rows.items():
            if (value := self.rows[place][row].value) is None:
                return None
            out[place] = row, value
        return out


def _first_with(fresh: set[tuple[int, ...]], rest: set[tuple[int, ...]]) -> Iterator[tuple[Rectangle, ...]]:
    """Boxes that hold a fresh point and none of the rest; each subscription is in one of them."""
    before: list[tuple[int, ...]] = []
    for point in sorted(fresh):
        yield from boxes_without(point, envelope({*rest, *before}, point))
        before.append(point)
