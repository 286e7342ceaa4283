"""UNION ALL: the rows of several SELECTs, one after the other, as often as they occur.

The branches have the same number of columns, of the same types; names are those of the first. Options at the
end are those of every branch that reads a stream.

>>> from tocsin.language.sql import parse_query
>>> from tocsin.model.schema import Field, Table, Type
>>> tables = {n: Table(n, (Field("k", Type.BIGINT), Field(n, Type.STRING)), ("k",)) for n in "ab"}
>>> query = parse_query("SELECT k FROM a UNION ALL SELECT k FROM b WHERE b = 'x'", tables)
>>> len(query.branches), [table.name for table in query.tables]
(2, ['a', 'b'])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from tocsin.language.algebra import Column, Item, Query, TableRef
from tocsin.language.dialect import SourceText
from tocsin.language.options import NO_OPTIONS
from tocsin.language.with_options import OptionReader
from tocsin.model.schema import Catalog, Stream

__all__ = ["read_union"]

_LARGEST = 16  # branches


def read_union(
    tree: exp.Union,
    source: SourceText,
    catalog: Catalog,
    read: Callable[[exp.Select, OptionReader | None], Query],
) -> Query:
    """The query of a UNION ALL; `read` reads a branch with options of the whole."""
    selects = _branches(tree, source)
    options = OptionReader(source, selects[-1])
    if len(selects) > _LARGEST:
        fact = f"a UNION ALL has at most {_LARGEST} branches"
        raise source.error(fact, selects[_LARGEST], "subscribe to several")
    if options.options.refresh is not None or options.options.memory is not None:
        name = "refresh" if options.options.refresh is not None else "memory"
        raise options.error(f"{name} is not for UNION ALL", name, "subscribe to each branch")
    branches = []
    for n, select in enumerate(selects):
        if select.args.get("limits") and n < len(selects) - 1:
            hint = "write it once, after the last SELECT"
            raise source.error("options of a UNION ALL are at its end", select.args["limits"], hint)
        if select.args.get("order") or select.args.get("limit"):
            where = source.token("ORDER", "ORDER BY", "LIMIT", after=source.at(select).start)
            raise source.error("UNION ALL has no order", where, "leave out ORDER BY and LIMIT")
        branches.append(read(select, _own_options(select, options, source, catalog)))
    items = tuple(Item(Column(i.name, i.expression.type), i.name) for i in branches[0].items)
    for n, branch in enumerate(branches):
        _check_items(items, branch, selects[n], source)
    if options.options is not NO_OPTIONS and not any(b.options is not NO_OPTIONS for b in branches):
        name = next(iter(options.nodes))
        raise options.error(f"{name} is for streams, and the query reads tables", name, "leave it out")
    tables = tuple(_marked(ref, catalog) for branch in branches for ref in branch.tables)
    return Query(items, tables, options=options.options, branches=tuple(branches))


def _branches(tree: exp.Expr, source: SourceText) -> list[exp.Select]:
    """The SELECTs, in order."""
    if isinstance(tree, exp.Select):
        return [tree]
    if isinstance(tree, exp.Subquery) and not any(v for k, v in tree.args.items() if k != "this"):
        return _branches(tree.this, source)
    if not isinstance(tree, exp.Union) or tree.args.get("distinct"):
        what = tree.key.upper() if isinstance(tree, exp.SetOperation) else "this"
        where = source.token("UNION", "INTERSECT", "EXCEPT", "MINUS")
        raise source.error(f"{what} is not supported", where, "combine SELECTs by UNION ALL")
    if any(tree.args.get(name) for name in ("order", "limit", "offset")):
        where = source.token("ORDER", "ORDER BY", "LIMIT", "OFFSET")
        raise source.error("UNION ALL has no order", where, "leave out ORDER BY and LIMIT")
    if tree.args.get("with_"):
        raise source.error("WITH is not supported", source.token("WITH"), "name the tables in FROM")
    return [*_branches(tree.this, source), *_branches(tree.expression, source)]


def _own_options(
    select: exp.Select, options: OptionReader, source: SourceText, catalog: Catalog
) -> OptionReader:
    """The options of the whole, if the branch reads a stream; else none."""
    names = {table.name.lower() for table in select.find_all(exp.Table)}
    streams = {name.lower() for name, known in catalog.items() if isinstance(known, Stream)}
    return options if names & streams else OptionReader(source, exp.Select())


def _check_items(items: tuple[Item, ...], branch: Query, select: exp.Select, source: SourceText) -> None:
    if not branch.items:
        raise source.error(
            "* of an open stream is not for UNION ALL", select.expressions[0], "name attributes"
        )
    if len(branch.items) != len(items):
        fact = f"this SELECT has {_columns(len(branch.items))}, and the first one {_columns(len(items))}"
        raise source.error(fact, select.expressions[0], "select as many in each branch of UNION ALL")
    for n, (first, own) in enumerate(zip(items, branch.items, strict=True)):
        assert isinstance(first.expression, Column)
        one, other = first.expression.type, own.expression.type
        if one is not other:
            where = select.expressions[n] if n < len(select.expressions) else select.expressions[-1]
            fact = f"{own.name} is a {other}, and {first.name} of the first SELECT a {one}"
            raise source.error(fact, where, "the branches of UNION ALL have columns of the same types")


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def _marked(ref: TableRef, catalog: Catalog) -> TableRef:
    """A table of the whole query, which says whether it is a stream."""
    return replace(ref, stream=isinstance(catalog.get(ref.name), Stream))
