"""Join conditions: equalities that form a tree, and bands.

The conditions of ON and WHERE, split at AND, go into one pool. A condition that compares columns of
two tables is a join condition; the others stay in WHERE. An equality is one edge between two tables. Each
linear condition, however it is written,

    a.x - b.y BETWEEN -5 AND 10        a.x <= b.y + 10        b.y < a.x

is brought to one form, `low <= a.x - b.y <= high`, by collecting columns and constants on one
side; several bounds on the same pair of columns become one `Band`. For time columns the ends are
microseconds.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from fractions import Fraction

from sqlglot import exp

from tocsin.errors import SqlError
from tocsin.language.algebra import Band, Column, Equal
from tocsin.language.conditions import FLIPPED, OPERATORS, ConditionReader, unwrap
from tocsin.language.expressions import ExpressionReader, is_computed
from tocsin.language.literals import MAX_DIGITS
from tocsin.language.scope import NameScope
from tocsin.model.schema import Type

__all__ = ["MAX_TABLES", "JoinReader"]

MAX_TABLES = 8
_MICROSECONDS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": 10**6,
    "MINUTE": 60 * 10**6,
    "HOUR": 3600 * 10**6,
    "DAY": 86400 * 10**6,
    "WEEK": 7 * 86400 * 10**6,
}
_LARGEST = sys.float_info.max  # also for whole numbers, since they are added to doubles
_ENDS, _TOO_FAR = "the ends of a band are finite numbers or intervals", "the interval is out of range"
_BAND_HINT = "a band is like: a.x - b.y BETWEEN -5 AND 10"
_INTERVAL_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]*)", re.ASCII)


@dataclass(slots=True)
class _Linear:
    """A sum of signed columns, a number and an interval in microseconds (None: no such constant)."""

    columns: list[tuple[int, Column]]
    number: int | float | None = None
    interval: int | None = None

    def plus(self, other: _Linear, sign: int) -> _Linear:
        number, interval = self.number, self.interval
        if other.number is not None:
            number = (number or 0) + sign * other.number
        if other.interval is not None:
            interval = (interval or 0) + sign * other.interval
        return _Linear(self.columns + [(sign * s, c) for s, c in other.columns], number, interval)


class JoinReader:
    """Collects the join conditions of one query."""

    def __init__(self, conditions: ConditionReader, scope: NameScope) -> None:
        self.conditions, self.scope, self.source = conditions, scope, scope.source
        self.found: list[Equal | Band] = []
        self.nodes: list[exp.Expr] = []  # the node of each, for errors
        self.rest: list[SqlError] = []  # why conditions on joined rows are no bands

    def using(self, left: Column, right: Column, node: exp.Expr) -> None:
        self._equal(left, right, node)

    def collect(self, node: exp.Expr) -> list[exp.Expr]:
        """Collect a condition if it is between tables; return what remains for WHERE."""
        if type(node) not in OPERATORS and not isinstance(node, exp.Between | exp.NullSafeEQ):
            return [node]
        relations = {self.scope.column(c).relation for c in node.find_all(exp.Column)}
        if len(relations) < 2 or isinstance(node, exp.NullSafeEQ):
            return [node]
        if isinstance(node, exp.Between):
            low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
            high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
            return self.collect(low) + self.collect(high)
        left, right = unwrap(node.this), unwrap(node.args["expression"])
        plain = isinstance(left, exp.Column) and isinstance(right, exp.Column)
        is_equality = isinstance(node, exp.EQ) and (plain or not all(map(_is_linear, (left, right))))
        sides = [self._one_column(side) for side in (left, right)] if is_equality else []
        if sides and None not in sides and sides[0].relation != sides[1].relation:  # type: ignore[union-attr]
            self._equal(sides[0], sides[1], node)  # type: ignore[arg-type]
            return []
        try:
            self._band(node)
        except SqlError as error:
            is_band = _is_linear(left) and _is_end(right) and error.fact in (_ENDS, _TOO_FAR)
            if is_band or not self.conditions.joint:
                raise
            self.rest.append(error)
            return [node]
        return []

    def _one_column(self, node: exp.Expr) -> Column | None:
        """A column, or what is computed from columns of one table; None for anything else."""
        if isinstance(node, exp.Column):
            return self.scope.column(node)
        relations = {self.scope.column(column).relation for column in node.find_all(exp.Column)}
        if len(relations) != 1 or not is_computed(node):
            return None
        return ExpressionReader(self.scope, self.conditions.literals).derived(node, _BAND_HINT)

    # -- equalities --------------------------------------------------------------------------------

    def _equal(self, left: Column, right: Column, node: exp.Expr) -> None:
        if left.type is None or right.type is None or left.type.kind != right.type.kind:
            raise self.source.error(
                f"{left} is a {left.type} and {right} a {right.type}: they cannot be equal",
                node,
                "join columns of one kind",
            )
        if not {Equal(left, right), Equal(right, left)} & set(self.found):
            self.found.append(Equal(left, right))
            self.nodes.append(node)

    # -- bands -------------------------------------------------------------------------------------

    def _band(self, node: exp.Expr) -> None:
        if len(self.scope.entries) > 2:
            raise self.source.error(
                "a band joins two tables, and this query has more",
                node,
                "join three or more tables by equalities",
            )
        op = OPERATORS[type(node)]
        if op == "!=":
            raise self.source.error("tables cannot be joined by !=", node, _BAND_HINT)
        whole = self._linear(node.this).plus(self._linear(node.args["expression"]), -1)
        if len(whole.columns) != 2 or {s for s, _ in whole.columns} != {1, -1}:
            raise self.source.error("a band is about the difference of two columns", node, _BAND_HINT)
        (sign, left), (_, right) = whole.columns
        self._comparable(left, right, node)
        end = self._end(whole, left, right, node)
        # sign * (left - right) + end  op  0
        bound = -end if sign > 0 else end
        op = op if sign > 0 else FLIPPED[op]
        low, high = op in (">", ">=", "="), op in ("<", "<=", "=")
        strict = op in ("<", ">")
        band = Band(
            left, right, bound if low else None, bound if high else None, low and strict, high and strict
        )
        self._merge(band, node)

    def _comparable(self, left: Column, right: Column, node: exp.Expr) -> None:
        kinds = {column.type.kind for column in (left, right) if column.type is not None}
        if len(kinds) != 1 or not kinds <= {"number", "time"}:
            raise self.source.error(
                f"{left} is a {left.type} and {right} a {right.type}: a band needs two numbers or two times",
                node,
                "join other columns by =",
            )
        for column in (left, right):
            if column.type is not None and column.type.is_decimal:
                hint = f"write CAST({column} AS DOUBLE) in it, or compare after another join condition"
                raise self.source.error(f"{column} is a {column.type}, and a band takes none", node, hint)

    def _end(self, whole: _Linear, left: Column, right: Column, node: exp.Expr) -> int | float:
        """The constant of the condition; microseconds if the columns are times."""
        timed = left.type is not None and left.type.kind == "time"
        if not timed:
            if whole.interval is not None:
                raise self.source.error(
                    f"{left} is a {left.type}: an INTERVAL needs times", node, "write a number"
                )
            return whole.number or 0
        if whole.number is None:
            return self._check_range(whole.interval or 0, node)
        if left.type is not Type.DATE or right.type is not Type.DATE or not isinstance(whole.number, int):
            raise self.source.error(
                "times differ by an INTERVAL, not by a number", node, "write INTERVAL '5' MINUTE"
            )
        return self._check_range(whole.number * _MICROSECONDS["DAY"] + (whole.interval or 0), node)

    def _check_range(self, microseconds: int, node: exp.Expr) -> int:
        if abs(microseconds) >= 2**63:
            raise self.source.error(_TOO_FAR, node, "times differ by less than 10,000 years")
        return microseconds

    def _merge(self, band: Band, node: exp.Expr) -> None:
        """Add a band; intersect it with an earlier one on the same two columns."""
        for i, old in enumerate(self.found):
            if isinstance(old, Band) and {old.left, old.right} == {band.left, band.right}:
                self.found[i] = _intersect(old, band if band.left == old.left else _mirrored(band))
                return
        self.found.append(band)
        self.nodes.append(node)

    def _linear(self, node: exp.Expr) -> _Linear:
        node = unwrap(node)
        if isinstance(node, exp.Column):
            return _Linear([(1, self.scope.column(node))])
        if isinstance(node, exp.Add | exp.Sub):
            left, right = self._linear(node.this), self._linear(node.args["expression"])
            return left.plus(right, 1 if isinstance(node, exp.Add) else -1)
        if isinstance(node, exp.Neg):
            return _Linear([]).plus(self._linear(node.this), -1)
        if isinstance(node, exp.Interval):
            return _Linear([], None, self._interval(node))
        constant = self.conditions.literals.read(node)
        if constant is None and (column := self._one_column(node)) is not None:
            return _Linear([(1, column)])
        if constant is None:
            raise self.source.error("only + and - of columns and constants make a band", node, _BAND_HINT)
        value = constant.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
            raise self.source.error(_ENDS, node, _BAND_HINT)
        return _Linear([], value)

    def _interval(self, node: exp.Interval) -> int:
        """An interval in microseconds: `'5' MINUTE`, `'5 minutes'`, `5 MINUTES`, `'1 day 2 hours'`."""
        value, unit = node.this, node.args.get("unit")
        if isinstance(value, exp.Literal) and (unit is None or isinstance(unit, exp.Var)):
            text = f"{value.this} {unit.name}" if unit is not None else str(value.this)
            total = _read_interval(text)
            if total is not None:
                return total
        raise self.source.error(
            "this interval cannot be read",
            node,
            "write INTERVAL '5' MINUTE; units go from microsecond to week",
        )

    # -- the shape ---------------------------------------------------------------------------------

    def check_tree(self) -> None:
        """Raise unless the conditions connect all tables without a cycle."""
        group = {entry.ref.alias: i for i, entry in enumerate(self.scope.entries)}
        pairs: set[frozenset[str]] = set()
        for join, node in zip(self.found, self.nodes, strict=True):
            pair = frozenset((join.left.relation, join.right.relation))
            if pair in pairs:
                continue  # another column of the same edge
            pairs.add(pair)
            a, b = group[join.left.relation], group[join.right.relation]
            if a == b:
                raise self._cycle(join, node)
            group = {alias: a if g == b else g for alias, g in group.items()}
        first = group[self.scope.entries[0].ref.alias]
        for entry in self.scope.entries:
            if group[entry.ref.alias] != first:
                if self.rest:
                    raise self.rest[0]
                others = ", ".join(e.ref.alias for e in self.scope.entries if group[e.ref.alias] == first)
                raise self.source.error(
                    f"nothing joins {entry.ref.alias} with {others}",
                    entry.node,
                    "add a condition such as a.x = b.x",
                )

    def _cycle(self, join: Equal | Band, node: exp.Expr) -> SqlError:
        return self.source.error(
            f"the joins form a cycle: {join.left.relation} and {join.right.relation} are already connected",
            node,
            "joins form a tree: leave out a condition that follows from the others",
        )


def _is_linear(node: exp.Expr) -> bool:
    """Whether a node has nothing but columns, constants, + and -."""
    kinds = (exp.Column, exp.Literal, exp.Add, exp.Sub, exp.Neg, exp.Paren, exp.Interval, exp.Var)
    return all(isinstance(part, (*kinds, exp.Identifier)) for part in node.walk())


def _is_end(node: exp.Expr) -> bool:
    """Whether a node may stand for the end of a band, if its value were one."""
    return isinstance(node, exp.Null | exp.Placeholder) or _is_linear(node)


def _read_interval(text: str) -> int | None:
    total, at, text = Fraction(0), 0, text.strip()
    while at < len(text):
        part = _INTERVAL_PART.match(text, at)
        unit = part[2].upper().removesuffix("S") if part else ""
        if part is None or unit not in _MICROSECONDS:
            return None
        if len(part[1]) > MAX_DIGITS:
            return None
        total += Fraction(part[1]) * _MICROSECONDS[unit]
        at = part.end()
    return int(total) if text and total.denominator == 1 else None


def _mirrored(band: Band) -> Band:
    """The same band about `right - left`."""
    low = None if band.high is None else -band.high
    high = None if band.low is None else -band.low
    return Band(band.right, band.left, low, high, band.high_open, band.low_open)


def _intersect(a: Band, b: Band) -> Band:
    if b.low is not None and (a.low is None or (b.low, b.low_open) > (a.low, a.low_open)):
        a = replace(a, low=b.low, low_open=b.low_open)
    if b.high is not None and (a.high is None or (b.high, not b.high_open) < (a.high, not a.high_open)):
        a = replace(a, high=b.high, high_open=b.high_open)
    return a
