"""Templates of texts whose conditions were seen in other texts: composed, not parsed.

Texts over a stream of many attributes differ in the attributes they name too, so that nearly each has a
skeleton (`template.py`) of its own, while its conditions are few, in ever new combinations:

    SELECT * FROM hits WHERE a7 = s AND b2 <= i      a head and two conditions
    SELECT * FROM hits WHERE b2 <= i AND c9 > i      one of them again

The parser reads each condition once, after its head, and written twice (`... WHERE a7 = s AND a7 = s`): as
the first condition and as a later one, as the last and as one before others. What a keyword or a wrong name
means is so decided by the parser, too: a condition that it rejects, or reads as anything but the same
condition twice, is not composed. Only heads that read one relation, and conditions of these forms are:

    name op literal     name BETWEEN literal AND literal     name [R]LIKE literal     name IN (literal, ...)

A condition takes a millisecond once, a template of known ones 30 microseconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tocsin.errors import SqlError
from tocsin.language.algebra import And, Atom, Between, Compare, Ilike, In, Like, Query, Rlike
from tocsin.language.literals import Slot

__all__ = ["ComposedQueries"]

MAX_KNOWN = 100_000
MAX_PARTS = 32  # conditions of a text
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_MARK = "[\x01-\x03]"
_VALUE = rf"(?:-\s*)?{_MARK}"
_HEAD = re.compile(
    rf"\s*SELECT\s+(?:\*|{_NAME}(?:\s*,\s*{_NAME})*)\s+FROM\s+{_NAME}\s+WHERE\s+", re.IGNORECASE | re.ASCII
)
_PART = re.compile(
    rf"""(?P<part>{_NAME}\s*(?:
        (?:=|!=|<>|<=|>=|<|>)\s*{_VALUE}
      | \s BETWEEN\s+{_VALUE}\s+AND\s+{_VALUE}
      | \s R?LIKE\s+{_VALUE}
      | \s IN\s*\(\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\)
    ))(?P<end>\s+AND\s+|\s*\Z)""",
    re.IGNORECASE | re.ASCII | re.VERBOSE,
)
_MARKS = re.compile(_MARK)


class _Condition(NamedTuple):
    """A condition whose slots are its literals in order, and the query it was read in."""

    atom: Atom
    query: Query


class ComposedQueries:
    """Queries with slots, of conditions that were traced before; `trace` is `trace_query` for a catalog.

    >>> from tocsin.language.sql import trace_query
    >>> from tocsin.language.template import lift
    >>> from tocsin.model.schema import Stream
    >>> traced = []
    >>> def trace(text):
    ...     traced.append(text)
    ...     return trace_query(text, {"s": Stream("s")})
    >>> known = ComposedQueries(trace, after=0)
    >>> for text in ("SELECT * FROM s WHERE a = 1 AND b > 2", "SELECT * FROM s WHERE b > 5 AND a = 9"):
    ...     lifted = lift(text)
    ...     print([slot.value.key for slot in known.query(text, lifted.skeleton, lifted.starts).where.args])
    [26, 36]
    [26, 36]
    >>> traced[0], len(traced)
    ('SELECT * FROM s WHERE a = 1 AND a = 1', 2)
    """

    def __init__(self, trace: Callable[[str], Query], after: int = 8) -> None:
        self._trace, self._after = trace, after
        self._heads = Counter[str]()  # texts by head; those of a rare one are parsed, once each
        self._known: dict[tuple[str, str], _Condition | None] = {}  # None: not composed

    def query(self, text: str, skeleton: str, starts: Sequence[int]) -> Query | None:
        """The traced query of a text, all of whose literals are slots; None if the parser must read it."""
        head = _HEAD.match(skeleton)
        if head is None:
            return None
        self._heads[head[0]] += 1
        if self._heads[head[0]] <= self._after:
            return None
        found, atoms, at, first = list[_Condition](), list[Atom](), head.end(), 0
        while True:
            part = _PART.match(skeleton, at)
            if part is None or len(found) == MAX_PARTS:
                return None
            written = part["part"]
            own = starts[first : first + len(_MARKS.findall(written))]
            known = self._condition(head[0], written, text, own)
            if known is None:
                return None
            found.append(known)
            atoms.append(_with_keys(known.atom, own))
            at, first = part.end(), first + len(own)
            if not part["end"].strip():
                break
        return replace(found[0].query, where=atoms[0] if len(atoms) == 1 else And(tuple(atoms)))

    def _condition(self, head: str, part: str, text: str, starts: Sequence[int]) -> _Condition | None:
        key = head, part
        if key not in self._known:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            try:
                self._known[key] = self._read(head, part, text, starts)
            except SqlError:  # maybe of the value
                return None
        return self._known[key]

    def _read(self, head: str, part: str, text: str, starts: Sequence[int]) -> _Condition | None:
        """Let the parser read the condition, written twice."""
        written = _filled(part, text, starts)
        query = self._trace(f"{head}{written} AND {written}")
        if not (isinstance(query.where, And) and len(query.where.args) == 2):
            return None
        one, other = query.where.args
        if not (isinstance(one, Compare | Between | In | Like | Ilike | Rlike) and type(other) is type(one)):
            return None
        keys, again = _keys(one), _keys(other)
        moved = len(head) + len(written) + len(" AND ")
        begin = _offsets(part, text, starts, len(head))
        if list(keys) != begin or list(again) != [key - len(head) + moved for key in begin]:
            return None
        if one.column != other.column or getattr(one, "op", None) != getattr(other, "op", None):
            return None
        return _Condition(one, query)


def _filled(part: str, text: str, starts: Sequence[int]) -> str:
    """A condition with its literals as the text has them."""
    given = iter(starts)
    return _MARKS.sub(lambda _: _literal(text, next(given)), part)


def _offsets(part: str, text: str, starts: Sequence[int], begin: int) -> list[int]:
    """Where the literals of a condition are, if it is written from `begin` on."""
    out = []
    for mark, start in zip(_MARKS.finditer(part), starts, strict=True):
        out.append(begin + mark.start())
        begin += len(_literal(text, start)) - 1
    return out


_LITERAL = re.compile(r"'[^']*'|\"[^\"]*\"|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)


def _literal(text: str, start: int) -> str:
    found = _LITERAL.match(text, start)
    assert found is not None
    return found[0]


def _keys(atom: Compare | Between | In | Like | Ilike | Rlike) -> tuple[Any, ...]:
    """The keys of all slots of an atom, in order; -1 for a constant, or a literal without a slot."""
    values: Sequence[Any]
    if isinstance(atom, In):
        values = atom.values
    elif isinstance(atom, Compare):
        values = [atom.value]
    elif isinstance(atom, Between):
        values = [atom.low, atom.high]
    else:
        values = [atom.pattern]
    return tuple(value.key if isinstance(value, Slot) else -1 for value in values)


def _with_keys(atom: Atom, keys: Sequence[int]) -> Atom:
    """The same with other keys of its slots, in order."""
    if isinstance(atom, Compare):
        return Compare(atom.column, atom.op, _moved(atom.value, keys[0]))
    if isinstance(atom, Between):
        return Between(atom.column, _moved(atom.low, keys[0]), _moved(atom.high, keys[1]))
    if isinstance(atom, In):
        return In(atom.column, tuple(map(_moved, atom.values, keys)))
    assert isinstance(atom, Like | Ilike | Rlike)
    return type(atom)(atom.column, _moved(atom.pattern, keys[0]))


def _moved(slot: Any, key: int) -> Any:
    return Slot(key, slot.steps)
