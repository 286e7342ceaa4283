"""Values inside events: paths, `typeof`, and conditions on the elements of lists, as attributes.

    item.brand, item['brand'], tags[0]                       the value there
    typeof(item.brand)                                       what it is
    exists(items, i -> i.brand = 'acme' AND i.price > 5)     whether one element meets the condition
    array_contains(tags, 'new')                              exists(tags, e1 -> e1 = 'new')

Each becomes a `Column` whose name stands for it (`model/paths.py`), so every operator takes it. The element
of an `exists` is an event of one attribute, e1, in a list inside it e2, and so on; so `i.price` is the path
`e1.price` there, and conditions on elements are conditions on events.

>>> from tocsin.language.dialect import read
>>> trees, source = read("SELECT * FROM s WHERE exists(items, i -> i.brand = 'acme' AND i.sizes[0] > 5)")
>>> condition = trees[0].args["where"].this
>>> print(NestedReader(source, ConstantReader(source)).column(condition))
exists(items, e1 -> e1.brand = 'acme' AND e1.sizes[0] > 5)

Indexes only find what is there, so `presence` rewrites the truth of an `exists` for normal forms: true where
the attribute MARK MARK exists(...) is present, false where it is absent and there is a list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from tocsin.errors import TocsinError
from tocsin.language.algebra import (
    And,
    Between,
    Column,
    Compare,
    Exists,
    In,
    IsNull,
    Not,
    Or,
    Predicate,
    Truth,
    exists_of,
    literal,
)
from tocsin.language.dialect import SourceText
from tocsin.language.literals import ConstantReader
from tocsin.model.derived import FUNCTIONS, PATHS, derived
from tocsin.model.paths import ALL_VALUES, MARK, Path, Step, is_exists, read_path

__all__ = ["NestedReader", "is_nested_node", "presence"]

_LEVELS = 16  # of lists inside each other in a condition
_CALLS = "write ip_key(source), geo_km(place, 52.5, 13.4), alike(a, b, 'equal'), or event_text()"
_HINT = "write attribute.name, attribute['any name'] or attribute[0]"


def is_nested_node(node: exp.Expr) -> bool:
    """Whether a node is about something inside an attribute, wherever it occurs."""
    if isinstance(node, exp.Dot | exp.Bracket | exp.Typeof | exp.ArrayContains):
        return True
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in FUNCTIONS
    if isinstance(node, exp.Exists):
        return isinstance(node.args.get("expression"), exp.Lambda)
    return isinstance(node, exp.Column) and bool(node.args.get("table"))


@dataclass(frozen=True, slots=True)
class NestedReader:
    """Reads nodes of one text; `variable` is the element that the condition of an `exists` is about."""

    source: SourceText
    literals: ConstantReader
    variable: str = ""
    level: int = 0

    def column(self, node: exp.Expr) -> Column:
        """The attribute that stands for a node."""
        if isinstance(node, exp.Typeof):
            return Column(f"{MARK}typeof({self._path(node.this)})")
        if isinstance(node, exp.Exists):
            return self._exists(node)
        if isinstance(node, exp.ArrayContains):
            return self._contains(node)
        if isinstance(node, exp.Anonymous):
            return self._computed(node)
        return Column(self._path(node).name)

    # -- paths -------------------------------------------------------------------------------------

    def _path(self, node: exp.Expr, *, spreads: bool = False) -> Path:
        steps = self._steps(node, spreads)
        if self.variable:
            if steps[0] != self.variable:
                hint = f"its conditions are about {self.variable}, the element"
                raise self.source.error("exists looks at one list only", node, hint)
            steps = (f"e{self.level}", *steps[1:])
        return Path(steps)

    def _steps(self, node: exp.Expr, spreads: bool) -> tuple[Step, ...]:
        if isinstance(node, exp.Paren):
            return self._steps(node.this, spreads)
        if isinstance(node, exp.Identifier):
            return (node.name,)
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier):
            parts = [node.args.get(name) for name in ("catalog", "db", "table", "this")]
            return tuple(part.name for part in parts if part is not None)
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
            return (*self._steps(node.this, spreads), node.expression.name)
        if isinstance(node, exp.Bracket) and len(node.expressions) == 1:
            return (*self._steps(node.this, spreads), self._place(node, node.expressions[0], spreads))
        raise self.source.error("a path of names and places is expected here", node, _HINT)

    def _place(self, node: exp.Expr, place: exp.Expr, spreads: bool) -> Step:
        if isinstance(place, exp.Star):
            if spreads:
                return ...
            hint = "write exists(tags[*], t -> t = 'new')"
            raise self.source.error("[*] is for exists", node, hint)
        if isinstance(place, exp.Literal):
            if place.is_string:
                return str(place.this)
            if place.this.isdecimal() and place.this.isascii() and len(place.this) < 10:
                return int(place.this)
        raise self.source.error("a place is a number from 0 or a name in quotes", node, _HINT)

    def _computed(self, node: exp.Anonymous) -> Column:
        """A function of `model/derived.py`: of paths and constants."""
        name, arguments = node.name.lower(), node.expressions
        paths = PATHS.get(name, 0)
        shown = [str(self._path(argument)) for argument in arguments[:paths]]
        for argument in arguments[paths:]:
            constant = replace(self.literals, trace=False, params=None).read(argument)
            if constant is None or constant.value is None:
                raise self.source.error(f"{name} takes constants here", argument, "write the value")
            shown.append(literal(constant.value))
        column = Column(f"{MARK}{name}({', '.join(shown)})")
        try:
            derived(column.name)
        except (ValueError, TocsinError) as error:
            raise self.source.error(f"{name} does not take these arguments: {error}", node, _CALLS) from None
        return column

    # -- lists -------------------------------------------------------------------------------------

    def _list(self, node: exp.Expr) -> str:
        """The list of an `exists`, as text."""
        if isinstance(node, exp.Anonymous) and node.name.lower() == ALL_VALUES[:-2]:
            if node.expressions or self.variable:
                hint = "write exists(all_values(), v -> ...), and not inside another exists"
                raise self.source.error("all_values() stands for all values of an event", node, hint)
            return ALL_VALUES
        return str(self._path(node, spreads=True))

    def _exists(self, node: exp.Exists) -> Column:
        inside = node.args["expression"]
        if len(inside.expressions) != 1 or not isinstance(inside.expressions[0], exp.Identifier):
            hint = "write exists(tags, t -> t = 'new')"
            raise self.source.error("exists takes a condition on one element", node, hint)
        if self.level == _LEVELS:
            raise self.source.error(f"lists nest at most {_LEVELS} deep", node, "name elements by place")
        reader = replace(
            self,
            literals=replace(self.literals, trace=False, params=None),
            variable=inside.expressions[0].name,
            level=self.level + 1,
        )
        return Exists(self._list(node.this), reader.condition(inside.this), f"e{self.level + 1}").column

    def _contains(self, node: exp.ArrayContains) -> Column:
        found = self.literals.read(node.expression)
        if found is None or found.value is None:
            hint = "write array_contains(tags, 'new')"
            raise self.source.error("array_contains takes a list and a constant", node, hint)
        if found.slot is not None and self.literals.params is not None:
            raise self.source.error("parameters are not supported in array_contains", node, "write the value")
        element = Column(f"e{self.level + 1}")
        return Exists(self._list(node.this), Compare(element, "=", found.value), element.name).column

    def condition(self, node: exp.Expr) -> Predicate:
        """The condition on an element."""
        from tocsin.language.conditions import ConditionReader

        return ConditionReader(_ElementScope(self), self.literals).predicate(node)


@dataclass(frozen=True, slots=True)
class _ElementScope:
    """Names in the condition of an `exists`: as `Scope`, which it stands for."""

    reader: NestedReader

    @property
    def source(self) -> SourceText:
        return self.reader.source

    def column(self, node: exp.Expr) -> Column:
        return self.reader.column(node)

    def nested(self, node: exp.Expr, literals: ConstantReader) -> Column:
        """The attribute of a node that is about something inside the element."""
        return self.reader.column(node)


# -- normal forms --------------------------------------------------------------------------------------


def presence(literal: Predicate) -> Predicate:
    """An atom, or NOT of one, about the truth of an `exists` by what indexes find: presence, and a list.

    >>> found = Exists("tags", Compare(Column("e1"), "=", "new"), "e1").column
    >>> print(presence(Compare(found, "!=", True)))
    exists(tags, e1 -> e1 = 'new') IS NULL AND typeof(tags) = 'array'
    """
    negated = isinstance(literal, Not)
    atom = literal.arg if isinstance(literal, Not) else literal
    column = getattr(atom, "column", None)
    if column is None or not is_exists(column.name) or column.name.startswith(MARK + MARK):
        return literal
    kind = _list_type(exists_of(column.name))
    if isinstance(atom, IsNull):
        if kind is None:
            return Truth(negated)
        listed = Compare(kind, "=", "array")
        return listed if negated else Or((IsNull(kind), Compare(kind, "!=", "array")))
    truths = [_holds(atom, value) for value in (True, False)]
    true, false = (held is not None and held is not negated for held in truths)
    absent = IsNull(replace(column, name=MARK + column.name))
    known = Truth(True) if kind is None else Compare(kind, "=", "array")
    if true:
        return known if false else Not(absent)
    return And((absent, known)) if false else Truth(False)


def _list_type(exists: Exists) -> Column | None:
    """What says whether there is a list of elements; None if there is always one, which may be empty."""
    if exists.items == ALL_VALUES or read_path(exists.items).spreads:
        return None
    return Column(f"{MARK}typeof({exists.items})")


def _holds(atom: Predicate, value: bool) -> bool | None:
    """Whether an atom without NULLs holds for a boolean; None if it is about another kind."""
    if isinstance(atom, Compare):
        return _COMPARE[atom.op](value, atom.value) if isinstance(atom.value, bool) else None
    if isinstance(atom, Between):
        low, high = atom.low, atom.high
        return low <= value <= high if isinstance(low, bool) and isinstance(high, bool) else None
    if isinstance(atom, In) and all(isinstance(v, bool) for v in atom.values):
        return value in atom.values
    return None


_COMPARE: dict[str, Callable[[bool, bool], bool]] = {
    "=": lambda a, b: a is b,
    "!=": lambda a, b: a is not b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def read_exists(text: str) -> Exists:
    """The condition on elements that prints as this text."""
    from tocsin.language.dialect import read

    trees, source = read(f"SELECT * FROM s WHERE {text}", "a condition")
    level = int(trees[0].args["where"].this.args["expression"].expressions[0].name[1:]) - 1
    variable = f"e{level}" if level else ""
    reader = NestedReader(source, ConstantReader(source), variable, level)
    return exists_of(reader.column(trees[0].args["where"].this).name)
