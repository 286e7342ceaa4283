"""Sequences: `a FOLLOWED BY b ON ... WITHIN '5 minutes'`, events of one key in order.

Each step is a stream with an alias, as in a join; conditions of WHERE concern one step each. The steps have a
*key*: columns that equalities connect over all steps.

>>> from tocsin.language.sql import parse_query
>>> from tocsin.model.schema import Field, Stream, Type
>>> logins = Stream("logins", (Field("user", Type.STRING), Field("ok", Type.BOOLEAN)))
>>> text = "SELECT b.user FROM logins a FOLLOWED BY logins b USING (user) WITHIN '1 hour' WHERE b.ok = TRUE"
>>> query = parse_query(text, {"logins": logins})
>>> print(query)
SELECT b.`user` FROM logins AS a FOLLOWED BY logins AS b WITHIN '1 hour' WHERE a.`user` = b.`user` AND \
b.ok = TRUE
>>> key_of(query)
(('user',), ('user',))
"""

from __future__ import annotations

from datetime import timedelta

from sqlglot import exp

from tocsin.language.algebra import Band, Equal, Query, atoms
from tocsin.language.dialect import SourceText
from tocsin.language.scope import ScopeEntry
from tocsin.language.shape import conjuncts
from tocsin.language.spans import BadAmount, read_span
from tocsin.model.schema import Stream

__all__ = ["FOLLOWED", "MAX_STEPS", "key_of", "reject_sequence", "within_of"]

FOLLOWED = "FOLLOWED BY"
"""The kind of join between steps."""

MAX_STEPS = 5
_LONGEST = 2**62  # microseconds
_FORM = "write FROM a FOLLOWED BY b ON a.k = b.k WITHIN '5 minutes'"


def within_of(select: exp.Select, source: SourceText) -> int | None:
    """The time that a sequence may take, in microseconds; None for other queries."""
    joins: list[exp.Join] = select.args.get("joins") or []
    followed = [join for join in joins if join.args.get("kind") == FOLLOWED]
    if not followed:
        return None
    if len(followed) < len(joins):
        other = next(join for join in joins if join.args.get("kind") != FOLLOWED)
        raise source.error("a sequence has no other joins", other, _FORM)
    if len(joins) >= MAX_STEPS:
        raise source.error(f"a sequence has at most {MAX_STEPS} steps", joins[MAX_STEPS - 1], "drop a step")
    given = [join.meta["within"] for join in joins if "within" in join.meta]
    if len(given) != 1 or "within" not in joins[-1].meta:
        fact = "WITHIN stands once, after the last step" if given else "a sequence needs WITHIN"
        raise source.error(fact, given[0] if given else joins[-1], _FORM)
    try:
        span = read_span(str(given[0].this)) // timedelta(microseconds=1)
    except BadAmount as error:
        raise source.error(error.fact, given[0], error.hint) from None
    return min(span, _LONGEST)


def reject_sequence(query: Query, select: exp.Select, entries: list[ScopeEntry], source: SourceText) -> None:
    """Raise SqlError for what a sequence cannot have."""
    for entry in entries:
        if not isinstance(entry.relation, Stream):
            hint = f"join it beside the stream of a step in a subscription of its own, or {_FORM}"
            raise source.error(f"{entry.ref.alias} is a table; steps are events", entry.node, hint)
    used = [
        (bool(query.exists), "a subquery", source.token("EXISTS", "IN")),
        (bool(query.aggregates), "an aggregate", source.at(select.expressions[0])),
        (bool(query.group), "GROUP BY", source.token("GROUP BY", "GROUP")),
        (bool(query.partition), "QUALIFY", source.token("QUALIFY")),
        (query.distinct, "DISTINCT", source.token("DISTINCT")),
        (bool(query.order or query.limit), "ORDER BY", source.token("ORDER", "ORDER BY", "LIMIT")),
    ]
    for there, name, where in used:
        if there:
            raise source.error(
                f"{name} cannot be combined with a sequence", where, "select columns of its steps"
            )
    if query.options.given:
        fact = f"{query.options.given[0]} is not for sequences"
        raise source.error(fact, source.token(query.options.given[0].upper()), "WITHIN says all")
    for join in query.joins:
        if isinstance(join, Band):
            raise source.error("steps are connected by = alone", source.token("FOLLOWED"), _FORM)
    if key_of(query) is None:
        hint = "connect one column of each step: a.user = b.user AND b.user = c.user"
        raise source.error("a sequence needs a key that all steps have", source.token("FOLLOWED"), hint)
    for part in conjuncts(query.where):
        if len({atom.column.relation for atom in atoms(part)}) > 1:
            hint = "write conditions of each step for themselves, combined by AND"
            raise source.error("this condition mixes two steps", source.token("WHERE"), hint)


def key_of(query: Query) -> tuple[tuple[str, ...], ...] | None:
    """The key's columns of each step; None without a key, or if an equality is not a part of one."""
    classes: list[set[tuple[str, str]]] = []
    kinds: dict[tuple[str, str], object] = {}
    for join in query.joins:
        assert isinstance(join, Equal)
        both = {(c.relation, c.name) for c in (join.left, join.right)}
        kinds |= {(c.relation, c.name): c.type for c in (join.left, join.right)}
        joined = [one for one in classes if one & both]
        classes = [one for one in classes if not one & both] + [both.union(*joined)]
    columns: list[list[str]] = [[] for _ in query.tables]
    for one in sorted(classes, key=min):
        if len(one) != len(query.tables) or len({kinds[c] for c in one}) > 1:
            return None
        for place, table in enumerate(query.tables):
            columns[place] += [name for alias, name in one if alias == table.alias]
    lengths = {len(own) for own in columns}
    return tuple(map(tuple, columns)) if lengths == {len(classes)} and classes else None
