"""Columns, constants and conditions, as frozen values that print back as SQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal

from tocsin.model.expressions.derived import expression_of
from tocsin.model.expressions.tree import is_expression, print_expression, print_value
from tocsin.model.paths import MARK, shown_name
from tocsin.model.schema import Type, quote

__all__ = [
    "TRUE",
    "And",
    "Atom",
    "Between",
    "Column",
    "Compare",
    "Exists",
    "Ilike",
    "In",
    "IsNull",
    "IsTrue",
    "Like",
    "Not",
    "Or",
    "Predicate",
    "Rlike",
    "Truth",
    "Value",
    "atoms",
    "exists_of",
    "is_true",
    "literal",
    "with_column",
]

Value = int | float | Decimal | str | bool | date | datetime | None


def literal(value: Value) -> str:
    """A value as SQL text that the parser reads back to the same value.

    >>> literal("it's"), literal(5.0), literal(None), literal(date(2013, 1, 31))
    ("'it\\\\'s'", '5.0', 'NULL', "DATE '2013-01-31'")
    """
    return f"{value:f}" if isinstance(value, Decimal) else print_value(value)


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or an attribute of an open stream (then `type` is None: known only per event).

    `relation` is the table's alias in a query over several tables, and empty otherwise; JOINT for an
    expression over columns of several tables, whose names have their alias in front (`joint_name`).
    """

    name: str
    type: Type | None = None
    relation: str = ""

    def __hash__(self) -> int:
        return hash(self.name)  # which a text keeps

    def __str__(self) -> str:
        if self.relation == JOINT:
            tree = expression_of(self.name).tree
            return f"({print_expression(tree, lambda ref: str(_own(ref.name, None)))})"
        if is_expression(self.name) and self.relation:
            tree = expression_of(self.name).tree
            return f"({print_expression(tree, lambda ref: str(Column(ref.name, None, self.relation)))})"
        name = shown_name(self.name)
        return f"{quote(self.relation)}.{name}" if self.relation else name

    @property
    def parts(self) -> tuple[Column, ...]:
        """The columns of tables that it is about: itself, or those of an expression over several tables.

        >>> x, y = Column("x", Type.BIGINT, "a"), Column("y", Type.DOUBLE, "b.c")
        >>> [_own(joint_name(column), column.type) == column for column in (x, y)]
        [True, True]
        """
        if self.relation != JOINT:
            return (self,)
        found = expression_of(self.name)
        return tuple(_own(name, type) for name, type in zip(found.refs, found.types, strict=True))

    @property
    def relations(self) -> frozenset[str]:
        """The aliases of the tables that it is about."""
        return frozenset(part.relation for part in self.parts)


JOINT = "\x1f"
_DOT = "\x1e"  # stands for a dot in an alias


def joint_name(column: Column) -> str:
    """The name of a column in an expression over several tables."""
    return f"{column.relation.replace('.', _DOT)}.{column.name}"


def _own(name: str, type: Type | None) -> Column:
    alias, _, own = name.partition(".")
    return Column(own, type, alias.replace(_DOT, "."))


# -- conditions ------------------------------------------------------------------------------------


class _Exactly:
    """Equality by fields and their types: equal conditions print alike.

    In Python TRUE, 1 and 1.0 are equal; in an open stream TRUE and 1 are not, and a cache of normal
    forms must not return `x > 5` for `x > 5.0`.
    """

    __slots__ = ()

    column: Column

    def _compared(self) -> tuple[object, ...]:
        """The fields that equality compares."""
        return (self.column,)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._compared() == self._compared()

    def __hash__(self) -> int:
        return hash(self._compared())


def _exact(value: Value) -> object:
    return type(value), value


@dataclass(frozen=True, slots=True, eq=False)
class Compare(_Exactly):
    """`column op value`, op one of = != < <= > >=; against NULL it is unknown."""

    column: Column
    op: str
    value: Value

    def _compared(self) -> tuple[object, ...]:
        return self.column, self.op, _exact(self.value)

    def __str__(self) -> str:
        return f"{self.column} {self.op} {literal(self.value)}"


@dataclass(frozen=True, slots=True, eq=False)
class Between(_Exactly):
    """`low <= column AND column <= high`."""

    column: Column
    low: Value
    high: Value

    def _compared(self) -> tuple[object, ...]:
        return self.column, _exact(self.low), _exact(self.high)

    def __str__(self) -> str:
        return f"{self.column} BETWEEN {literal(self.low)} AND {literal(self.high)}"


@dataclass(frozen=True, slots=True, eq=False)
class In(_Exactly):
    """`column = v1 OR column = v2 ...`; a NULL among the values makes a miss unknown."""

    column: Column
    values: tuple[Value, ...]

    def _compared(self) -> tuple[object, ...]:
        return self.column, self.values, tuple(map(type, self.values))

    def __hash__(self) -> int:
        return hash((self.column, self.values))

    def __str__(self) -> str:
        return f"{self.column} IN ({', '.join(map(literal, self.values))})"


@dataclass(frozen=True, slots=True)
class Like:
    """Match the whole text: `%` any characters, `_` any one, a backslash escapes the next character."""

    column: Column
    pattern: str

    def __str__(self) -> str:
        return f"{self.column} LIKE {literal(self.pattern)}"


@dataclass(frozen=True, slots=True)
class Ilike:
    """LIKE for which letters have no case: text and pattern are folded (`model/folding.py`)."""

    column: Column
    pattern: str

    def __str__(self) -> str:
        return f"{self.column} ILIKE {literal(self.pattern)}"


@dataclass(frozen=True, slots=True)
class Rlike:
    """An RE2 pattern found anywhere in the text."""

    column: Column
    pattern: str

    def __str__(self) -> str:
        return f"{self.column} RLIKE {literal(self.pattern)}"


@dataclass(frozen=True, slots=True)
class IsNull:
    """True where the column is NULL or the attribute is missing, false elsewhere; never unknown."""

    column: Column

    def __str__(self) -> str:
        return f"{self.column} IS NULL"


@dataclass(frozen=True, slots=True)
class IsTrue:
    """True where an atom, or NOT of one, is true, and false elsewhere; never unknown. See `is_true`."""

    arg: Atom | Not

    @property
    def column(self) -> Column:
        inner = self.arg.arg if isinstance(self.arg, Not) else self.arg
        return inner.column  # type: ignore[union-attr]  # NOT is above an atom

    def __str__(self) -> str:
        return f"({self.arg}) IS TRUE"


@dataclass(frozen=True, slots=True)
class Truth:
    """A constant condition: True, False or None (unknown)."""

    value: bool | None

    def __str__(self) -> str:
        return literal(self.value)


TRUE = Truth(True)


@dataclass(frozen=True, slots=True)
class Not:
    arg: Predicate

    def __str__(self) -> str:
        inner = f"({self.arg})" if isinstance(self.arg, And | Or) else str(self.arg)
        return f"NOT {inner}"


@dataclass(frozen=True, slots=True)
class And:
    args: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({a})" if isinstance(a, And | Or) else str(a) for a in self.args)


@dataclass(frozen=True, slots=True)
class Or:
    args: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({a})" if isinstance(a, And | Or) else str(a) for a in self.args)


Atom = Compare | Between | In | Like | Ilike | Rlike | IsNull | IsTrue
Predicate = Atom | Truth | Not | And | Or


def atoms(predicate: Predicate) -> Iterator[Atom]:
    """The atoms of a condition, left to right."""
    if isinstance(predicate, And | Or):
        for arg in predicate.args:
            yield from atoms(arg)
    elif isinstance(predicate, Not):
        yield from atoms(predicate.arg)
    elif not isinstance(predicate, Truth):
        yield predicate


def with_column(atom: Atom, column: Column) -> Atom:
    """The same condition on another column."""
    if not isinstance(atom, IsTrue):
        return replace(atom, column=column)
    inner = atom.arg
    if isinstance(inner, Not):
        return IsTrue(Not(with_column(inner.arg, column)))  # type: ignore[arg-type]  # NOT is above an atom
    return IsTrue(with_column(inner, column))


def is_true(predicate: Predicate) -> Predicate:
    """`(predicate) IS TRUE`: the same condition without unknown, which counts as false.

    >>> x, y = Column("x"), Column("y")
    >>> print(is_true(Not(Or((Compare(x, "=", 1), Not(IsNull(y)))))))
    (NOT x = 1) IS TRUE AND y IS NULL
    """
    if isinstance(predicate, And | Or):
        return type(predicate)(tuple(map(is_true, predicate.args)))
    if isinstance(predicate, Truth):
        return Truth(predicate.value is True)
    if not isinstance(predicate, Not):
        return predicate if isinstance(predicate, IsNull | IsTrue) else IsTrue(predicate)
    inner = predicate.arg
    if isinstance(inner, And | Or):
        return (Or if isinstance(inner, And) else And)(tuple(is_true(Not(arg)) for arg in inner.args))
    if isinstance(inner, Not):
        return is_true(inner.arg)
    if isinstance(inner, Truth):
        return Truth(inner.value is False)
    return predicate if isinstance(inner, IsNull | IsTrue) else IsTrue(predicate)


# -- conditions on elements of lists ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether one element of a list meets a condition; `items` and `variable` as in `language/nested.py`.

    As a column it is TRUE, FALSE, or NULL where there is no list.
    """

    items: str
    where: Predicate
    variable: str

    def __str__(self) -> str:
        return f"exists({self.items}, {self.variable} -> {self.where})"

    @property
    def column(self) -> Column:
        """The attribute that stands for it."""
        name = f"{MARK}{self}"
        if len(_known_exists) >= _MOST_EXISTS:
            _known_exists.clear()
        _known_exists[name] = self
        return Column(name)


_MOST_EXISTS = 1 << 17
_known_exists: dict[str, Exists] = {}  # by name of the attribute


def exists_of(name: str) -> Exists:
    """The condition that an attribute stands for."""
    name = MARK + name.lstrip(MARK)
    if name not in _known_exists:
        from tocsin.language.nested import read_exists  # it reads texts, which this module does not

        _known_exists[name] = read_exists(name[1:])
    return _known_exists[name]
