"""What several conditions say about one column: intersect and unite their ranges (`cuts.py`).

>>> from tocsin.model.schema import Type
>>> x = Column("x", Type.BIGINT)
>>> print(*meet([Compare(x, ">", 2.5), Compare(x, "<", 9), Compare(x, "!=", 3)]))
x BETWEEN 4 AND 8
>>> meet([Compare(x, "=", 2.5)]) is None
True
>>> print(*join([Compare(x, "=", 7), Compare(x, "<", 3), Between(x, 2, 5)]))
x <= 5 x = 7
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tocsin.language.algebra import Atom, Between, Column, Compare, In, IsNull, Like, Not, Rlike, Value
from tocsin.language.cuts import DISCRETE, Cut, Line, Piece, is_point, kind_of, one_of, span

__all__ = ["Literal", "join", "kind_of_literal", "meet"]

Literal = Atom | Not


def meet(literals: Iterable[Literal]) -> tuple[Literal, ...] | None:
    """The conjunction of the literals with at most a few per column; None if it can never hold."""
    found: list[Literal] = []
    for column, group in _by_column(literals).items():
        merged = _meet_column(column, group)
        if merged is None:
            return None
        found += merged
    return tuple(found)


def join(literals: Iterable[Literal]) -> tuple[Literal, ...] | None:
    """The disjunction of the literals, ranges of a column united; None if it always holds."""
    found: list[Literal] = []
    for column, group in _by_column(literals).items():
        merged = _join_column(column, group)
        if merged is None:
            return None
        found += merged
    return tuple(found)


def _by_column(literals: Iterable[Literal]) -> dict[Column, list[Literal]]:
    groups: dict[Column, list[Literal]] = {}
    for literal in literals:
        groups.setdefault(_atom(literal).column, []).append(literal)
    return groups


def _atom(literal: Literal) -> Atom:
    if isinstance(literal, Not):
        assert not isinstance(literal.arg, Not), "NOT is pushed down first"
        return literal.arg  # type: ignore[return-value]
    return literal


def kind_of_literal(literal: Literal) -> str | None:
    """The kind of value a literal needs to hold; None if it does not say."""
    atom = _atom(literal)
    if isinstance(atom, IsNull):
        return None
    if isinstance(atom, Like | Rlike):
        return "text"
    return kind_of(
        atom.values[0] if isinstance(atom, In) else atom.low if isinstance(atom, Between) else atom.value
    )


# -- and -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Range:
    """Between two cuts (None: no end), perhaps only some points, without others and without holes."""

    line: Line
    low: Cut | None
    high: Cut | None
    points: set[Any] | None = None
    gone: set[Any] = field(default_factory=set)
    holes: list[tuple[Cut, Cut]] = field(default_factory=list)
    values: dict[Any, Value] = field(default_factory=dict)

    def raise_low(self, cut: Cut) -> None:
        if self.low is None or cut > self.low:
            self.low = cut

    def lower_high(self, cut: Cut) -> None:
        cut = self.line.end(cut)
        if self.high is None or cut < self.high:
            self.high = cut

    def cuts(self, value: Value) -> tuple[Cut, Cut]:
        below, above = self.line.cuts(value)
        if below != above:
            self.values.setdefault(below[0], value)
        return below, above

    def add(self, literal: Literal) -> None:
        if isinstance(literal, Not):
            atom = _atom(literal)
            if isinstance(atom, In):
                for value in atom.values:
                    self._without(value)
            elif isinstance(atom, Between):
                self.holes.append((self.cuts(atom.low)[0], self.cuts(atom.high)[1]))
        elif isinstance(literal, In):
            self._only(literal.values)
        elif isinstance(literal, Between):
            self.raise_low(self.cuts(literal.low)[0])
            self.lower_high(self.cuts(literal.high)[1])
        elif isinstance(literal, Compare):
            self._compare(literal)

    def _compare(self, literal: Compare) -> None:
        below, above = self.cuts(literal.value)
        if literal.op == "=":
            self._only((literal.value,))
        elif literal.op == "!=":
            self._without(literal.value)
        elif literal.op in (">", ">="):
            self.raise_low(below if literal.op == ">=" else above)
        else:
            self.lower_high(below if literal.op == "<" else above)

    def _only(self, values: Sequence[Value]) -> None:
        points = {below[0] for below, above in map(self.cuts, values) if below != above}
        self.points = points if self.points is None else self.points & points

    def _without(self, value: Value) -> None:
        below, above = self.cuts(value)
        if below != above:
            self.gone.add(below[0])

    def settle(self) -> bool:
        """Lets ends, points and holes act on each other until nothing moves; False if nothing is left."""
        before = None
        while before != (before := (self.low, self.high, len(self.holes), len(self.gone))):
            self._trim_ends()
            self._trim_holes()
            if self.low is not None and self.high is not None and self.low >= self.high:
                return False
        if self.points is not None:
            self.points = {key for key in self.points if self._has(key)}
            return bool(self.points)
        return True

    def _trim_ends(self) -> None:
        if self.low is not None and self.low[1] == 0 and self.low[0] in self.gone:
            self.low = (self.low[0] + 1, 0) if self.line.type in DISCRETE else (self.low[0], 1)
        if self.high is not None and self.high[1] == 1 and self.high[0] in self.gone:
            self.high = self.line.end((self.high[0], 0))
        self.gone = {key for key in self.gone if self._inside(key)}

    def _trim_holes(self) -> None:
        kept = []
        for start, stop in self.holes:
            if (
                start >= stop
                or (self.low is not None and stop <= self.low)
                or (self.high is not None and start >= self.high)
            ):
                continue
            if self.low is not None and start <= self.low:
                self.low = stop
            elif self.high is not None and stop >= self.high:
                self.high = self.line.end(start)
            elif self.line.end(stop) == (start[0], 1) and start[1] == 0:
                self.gone.add(start[0])
            else:
                kept.append((start, stop))
        self.holes = kept

    def _inside(self, key: Any) -> bool:
        return (self.low is None or (key, 0) >= self.low) and (self.high is None or (key, 1) <= self.high)

    def _has(self, key: Any) -> bool:
        holed = any(start <= (key, 0) and (key, 1) <= self.line.end(stop) for start, stop in self.holes)
        return self._inside(key) and key not in self.gone and not holed

    def _at(self, key: Any) -> Value:
        return self.line.value(key, self.values)

    def literals(self, column: Column) -> list[Literal]:
        if self.points is not None:
            return [one_of(column, [self._at(key) for key in sorted(self.points)])]
        found: list[Literal] = list(span(column, self.line, self.low, self.high, self.values))
        if self.gone:
            values = [self._at(key) for key in sorted(self.gone)]
            found.append(
                Compare(column, "!=", values[0]) if len(values) == 1 else Not(In(column, tuple(values)))
            )
        for start, stop in self.holes:
            found.append(Not(Between(column, self._at(start[0]), self._at(self.line.end(stop)[0]))))
        return found


def _meet_column(column: Column, literals: list[Literal]) -> list[Literal] | None:
    literals = list(dict.fromkeys(literals))
    if any(isinstance(literal, IsNull) for literal in literals):
        return literals if len(literals) == 1 else None  # NULL, and something that NULL fails
    kinds = {kind_of_literal(literal) for literal in literals} - {None}
    if len(kinds) > 1:
        return None  # an attribute of an open stream is one thing or the other
    texts = [literal for literal in literals if isinstance(_atom(literal), Like | Rlike)]
    if not {Not(literal) for literal in texts}.isdisjoint(texts):
        return None
    line = Line(column.type)
    covered = _Range(line, line.low, line.high)
    ranged = [literal for literal in literals if not isinstance(_atom(literal), IsNull | Like | Rlike)]
    for literal in ranged:
        covered.add(literal)
    if ranged and not covered.settle():
        return None
    found = (covered.literals(column) if ranged else []) + texts
    if not found and column.type is None and ranged:
        return ranged[:1]  # says no more than which kind of value it is
    return found or [Not(IsNull(column))]


# -- or --------------------------------------------------------------------------------------------


def _join_column(column: Column, literals: list[Literal]) -> list[Literal] | None:
    literals = list(dict.fromkeys(literals))
    null, some = IsNull(column), Not(IsNull(column))
    if some in literals:
        return None if null in literals else [some]
    kinds = {kind_of_literal(literal) for literal in literals} - {None}
    ranged: list[Literal] = []
    rest: list[Literal] = []
    for literal in literals:
        apart = isinstance(_atom(literal), IsNull | Like | Rlike) or _listed(literal)
        (rest if apart else ranged).append(literal)
    if len(kinds) > 1 or len(ranged) < 2:
        return literals
    line = Line(column.type)
    values: dict[Any, Value] = {}
    pieces = [piece for literal in ranged for piece in _pieces(literal, line, values)]
    united = _united(pieces, line)
    if united == [(line.low, line.high)]:
        if column.type is None:
            return literals
        return None if null in rest else [some]
    return _covering(column, line, united, values) + rest


def _listed(literal: Literal) -> bool:
    return isinstance(literal, Not) and isinstance(literal.arg, In)


def _pieces(literal: Literal, line: Line, values: dict[Any, Value]) -> list[Piece]:
    """The ranges in which one literal holds."""
    if isinstance(literal, In):
        return [
            piece
            for value in literal.values
            for piece in _pieces(Compare(literal.column, "=", value), line, values)
        ]
    if (isinstance(literal, Compare) and literal.op == "!=") or isinstance(literal, Not):
        atom = _atom(literal)
        low, high = (atom.low, atom.high) if isinstance(atom, Between) else (atom.value, atom.value)  # type: ignore[union-attr]
        covered = _Range(line, line.low, line.high, values=values)
        start, stop = covered.cuts(low)[0], covered.cuts(high)[1]
        return [(line.low, line.high)] if start >= stop else [(line.low, line.end(start)), (stop, line.high)]
    covered = _Range(line, line.low, line.high, values=values)
    covered.add(literal)
    if covered.points is not None:
        return [((key, 0), (key, 1)) for key in covered.points if covered._inside(key)]
    return [(covered.low, covered.high)] if covered.settle() else []


def _united(pieces: list[Piece], line: Line) -> list[Piece]:
    """The pieces in order, those that touch put together."""
    pieces = [p for p in pieces if p[0] is None or p[1] is None or p[0] < p[1]]
    pieces.sort(key=lambda piece: (0, ()) if piece[0] is None else (1, piece[0]))
    united: list[Piece] = []
    for low, high in pieces:
        if united and (united[-1][1] is None or low is None or low <= _after(united[-1][1], line)):
            last = united[-1][1]
            united[-1] = (united[-1][0], None if last is None or high is None else max(last, high))
        else:
            united.append((low, high))
    return united


def _after(cut: Cut, line: Line) -> Cut:
    return (cut[0] + 1, 0) if line.type in DISCRETE and cut[1] == 1 else cut


def _covering(column: Column, line: Line, pieces: list[Piece], values: dict[Any, Value]) -> list[Literal]:
    """The pieces as literals: a hole, ranges, and one list of points."""

    def at(key: Any) -> Value:
        return line.value(key, values)

    if len(pieces) == 2 and pieces[0][0] == line.low and pieces[1][1] == line.high:
        stop, start = pieces[1][0], pieces[0][1]
        if start is not None and stop is not None:
            first, last = _after(start, line), line.end(stop)
            if (first[1], last[1]) == (0, 1):
                same = first[0] == last[0]
                return [
                    Compare(column, "!=", at(first[0]))
                    if same
                    else Not(Between(column, at(first[0]), at(last[0])))
                ]
    points = [piece[0][0] for piece in pieces if piece[0] is not None and is_point(piece)]
    found: list[Literal] = []
    for piece in pieces:
        if not is_point(piece):
            found += span(column, line, *piece, values)  # one literal: what has two ends is closed
    return found + ([one_of(column, [at(key) for key in points])] if points else [])
