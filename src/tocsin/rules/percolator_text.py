r"""`query_string`: the query language of Lucene, read by luqum (the extra `percolator`).

As in Lucene's parser, AND, OR, + and - decide for each clause of a level whether it must match, may match or
must not; so `a OR b AND c` wants b and c.

>>> from tocsin.rules.percolator import Percolator
>>> query = {"query_string": {"query": "state:new AND NOT n:[5 TO *]", "default_field": "title"}}
>>> print(next(iter(Percolator().read([query]))).where)
exists(state[*], e1 -> e1 = 'new') = TRUE AND NOT exists(n[*], e1 -> e1 >= 5) = TRUE
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from luqum import tree
from luqum.exceptions import ParseError
from luqum.parser import parser

from tocsin.language.algebra import Predicate, Truth
from tocsin.rules.base import RefusedError
from tocsin.rules.percolator import Percolator, all_parts, any_part, never
from tocsin.rules.percolator_fields import MappedField, NestedScope

__all__ = ["condition_of"]


class _Clause(NamedTuple):
    """One clause of a level: the word before it, its sign, and what it is."""

    joined: str  # "", AND or OR
    sign: str  # "", + or -
    node: Any


@dataclass(frozen=True, slots=True)
class _TreeReader:
    """Reads a tree of luqum in a scope; `names` are the fields of clauses that name none."""

    owner: Percolator
    names: tuple[str, ...]
    required: bool  # whether clauses must match where nothing is said
    scope: NestedScope
    place: str

    def refused(self, construct: object, reason: str) -> RefusedError:
        return RefusedError(self.place, str(construct).strip(), reason)

    # -- levels --------------------------------------------------------------------------------------

    def level(self, node: Any) -> Predicate:
        """The condition of clauses side by side, as Lucene's parser joins them."""
        clauses = list(_clauses(node))
        if len(clauses) == 1 and not clauses[0].sign:
            return self.clause(clauses[0].node)
        kinds: list[str] = []  # must, may, not
        for clause in clauses:
            if kinds and clause.joined == "AND" and kinds[-1] != "not":
                kinds[-1] = "must"
            if kinds and clause.joined == "OR" and self.required and kinds[-1] != "not":
                kinds[-1] = "may"
            if clause.sign == "-":
                kinds.append("not")
            elif clause.sign == "+":
                kinds.append("must")
            elif self.required:
                kinds.append("may" if clause.joined == "OR" else "must")
            else:
                kinds.append("must" if clause.joined == "AND" else "may")
        made = [(kind, self.clause(clause.node)) for kind, clause in zip(kinds, clauses, strict=True)]
        must = [part for kind, part in made if kind == "must"]
        may = [part for kind, part in made if kind == "may"]
        parts = [*must, *([any_part(may)] if may and not must else [])]
        if not parts:
            return Truth(False) if not _only_not(made) else all_parts([never(part) for _, part in made])
        return all_parts([*parts, *(never(part) for kind, part in made if kind == "not")])

    def clause(self, node: Any) -> Predicate:
        """The condition of one clause."""
        if isinstance(node, tree.Group | tree.FieldGroup):
            return self.level(node.expr)
        if isinstance(node, tree.Boost):
            return self.clause(node.expr)
        if isinstance(node, tree.SearchField):
            return self._named(node)
        if isinstance(node, tree.BaseOperation | tree.Not | tree.Plus | tree.Prohibit):
            return self.level(node)
        if not self.names:
            raise self.refused(node, "it names no field: give default_field or fields")
        parts = [self.value(self.field(name), node) for name in self.names]
        return any_part(parts)

    def field(self, name: str) -> MappedField:
        return self.owner.fields(name, self.scope, self.place)

    def _named(self, node: Any) -> Predicate:
        name = _unescaped(node.name)
        if name == "*" and str(node.expr).strip() == "*":
            return Truth(True)
        if name == "_exists_":
            return self.owner.query({"exists": {"field": str(node.expr).strip()}}, self.scope, self.place)
        inner = _TreeReader(self.owner, (name,), self.required, self.scope, self.place)
        return inner.clause(node.expr)

    # -- values --------------------------------------------------------------------------------------

    def value(self, field: MappedField, node: Any) -> Predicate:
        """The condition that a field has a value."""
        for kind, make in _VALUES:
            if isinstance(node, kind):
                return make(self, field, node)
        raise self.refused(node, f"this is not supported: {type(node).__name__.lower()}")

    def _word(self, field: MappedField, node: Any) -> Predicate:
        raw = str(node.value)
        if raw in ("&&", "||") or raw.startswith("!"):
            raise self.refused(raw, "write AND, OR and NOT")
        if raw == "*":
            return field.exists(self.place)
        if re.search(r"(?<!\\)(?:\\\\)*[*?]", raw):
            words = field.analyzer in ("standard", "simple") and field.type == "text"
            return field.wildcard(raw.lower() if words else raw, self.place)
        return self._one(field, _unescaped(raw))

    def _one(self, field: MappedField, text: str) -> Predicate:
        if field.type == "plain" and not _NUMBER.fullmatch(text):
            return field.term(text, self.place)
        if field.type == "plain":
            return any_part([field.term(text, self.place), field.term(_number(text), self.place)])
        words = field.words(text, self.place)
        return (all_parts if self.required else any_part)(words)

    def _phrase(self, field: MappedField, node: Any) -> Predicate:
        text = _unescaped(str(node.value)[1:-1])
        return field.phrase(text, self.place) if field.type != "plain" else field.term(text, self.place)

    def _regex(self, field: MappedField, node: Any) -> Predicate:
        return field.regexp(str(node.value)[1:-1].replace("\\/", "/"), self.place)

    def _range(self, field: MappedField, node: Any) -> Predicate:
        bounds: dict[str, Any] = {}
        for name, end, closed in (
            ("gt", node.low, node.include_low), ("lt", node.high, node.include_high),
        ):  # fmt: skip
            text = _unescaped(str(end).strip())
            if text != "*":
                bounds[name + "e" * closed] = _bound(field, text.strip('"'))
        return field.range(bounds, self.place)

    def _open(self, field: MappedField, node: Any) -> Predicate:
        name = ("gt" if isinstance(node, tree.From) else "lt") + "e" * node.include
        return field.range({name: _bound(field, _unescaped(str(node.a).strip()))}, self.place)


_VALUES: tuple[tuple[type, Callable[[_TreeReader, MappedField, Any], Predicate]], ...] = (
    (tree.Word, _TreeReader._word),
    (tree.Phrase, _TreeReader._phrase),
    (tree.Regex, _TreeReader._regex),
    (tree.Range, _TreeReader._range),
    (tree.OpenRange, _TreeReader._open),
)
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _bound(field: MappedField, text: str) -> Any:
    return _number(text) if field.type == "plain" and _NUMBER.fullmatch(text) else text


def _only_not(made: list[tuple[str, Predicate]]) -> bool:
    return all(kind == "not" for kind, _ in made)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def _clauses(node: Any, joined: str = "", sign: str = "") -> Any:
    """The clauses of a level from left to right, however luqum grouped them."""
    if isinstance(node, tree.BaseOperation):
        word = {tree.AndOperation: "AND", tree.OrOperation: "OR"}.get(type(node), "")
        for n, child in enumerate(node.children):
            yield from _clauses(child, joined if n == 0 else word, sign)
    elif isinstance(node, tree.Not | tree.Prohibit):
        yield from _signed(node.a, joined, "-")
    elif isinstance(node, tree.Plus):
        yield from _signed(node.a, joined, "+")
    else:
        yield _Clause(joined, sign, node)


def _signed(node: Any, joined: str, sign: str) -> Any:
    """A clause under a sign, which stands before one clause only."""
    yield _Clause(joined, sign, node)


def condition_of(
    owner: Percolator, text: Any, names: list[str], required: bool, scope: NestedScope, place: str
) -> Predicate:
    """The condition of a query text."""
    at = f"{place}.query"
    if not isinstance(text, str):
        raise RefusedError(at, text, "the query is a text")
    if not text.strip():
        return Truth(False)
    try:
        found = parser.parse(text)
    except ParseError as error:
        raise RefusedError(at, text, f"luqum cannot read it: {error}") from None
    return _TreeReader(owner, tuple(names), required, scope, at).level(found)
