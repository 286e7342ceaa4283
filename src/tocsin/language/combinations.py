"""Which clauses, relations and options of a SELECT may be combined; everything else is rejected here.

stream                 filters; with `window` it is a table of events: every clause
stream ⋈ stream|table  with `window` as tables of events; otherwise see `reject_stream_join`
over a join of tables  aggregates, DISTINCT, GROUP BY, ORDER BY: every clause
outer join, subquery   rows alone; streams with `window` only
sequence               steps are streams with one key; see `sequences.py`
"""

from __future__ import annotations

from sqlglot import exp

from tocsin.errors import Position, SqlError
from tocsin.language.algebra import Band, Column, Query, Truth
from tocsin.language.dialect import SourceText
from tocsin.language.scope import ScopeEntry
from tocsin.language.sequences import reject_sequence
from tocsin.language.spans import BadAmount
from tocsin.language.windows import event_time
from tocsin.language.with_options import OptionReader
from tocsin.model.expressions.tree import is_expression
from tocsin.model.schema import Stream, Table, quote

__all__ = ["reject_combinations"]

_WITHOUT = {
    "aggregated": "SELECT its columns; or ",
    "grouped": "SELECT its columns; or ",
    "made distinct": "leave out DISTINCT; or ",
    "ordered or limited": "leave out ORDER BY and LIMIT; or ",
}
_WINDOW = "give it a window: WITH (window = '10 minutes')"


def reject_combinations(
    query: Query, select: exp.Select, entries: list[ScopeEntry], options: OptionReader
) -> None:
    """Raise SqlError for the first combination that is not supported; `entries`: of `query.tables`."""
    if query.within is not None:
        reject_sequence(query, select, entries, options.source)
        return
    if query.is_composed:
        _reject_composed(query, select, options.source)
    _reject_clauses(query, select, entries, options.source)
    streams = [entry for entry in entries if isinstance(entry.relation, Stream)]
    _reject_options(query, streams, options)
    windowed = query.options.window is not None and query.options.memory is None
    if streams and len(entries) > 1 and not windowed:
        if query.is_composed:
            first, what = streams[0], "an outer join" if query.outer else "a subquery"
            fact = f"{first.ref.alias} is a stream, and the events of {what} need a window"
            raise options.source.error(fact, first.node, _WINDOW)
        reject_stream_join(query, streams, entries, options.source)


def _reject_composed(query: Query, select: exp.Select, source: SourceText) -> None:
    """Outer joins and subqueries give rows, of one table or of two joined ones, at once."""
    what = "an outer join" if query.outer else "a subquery"
    if query.exists and len(query.from_tables) > 1:
        hint = "write FROM one table, and the other one as EXISTS (SELECT 1 FROM b WHERE b.k = a.k)"
        raise source.error("a subquery stands beside one table", select.args["joins"][0], hint)
    used = [
        (bool(query.aggregates), "aggregates", source.at(select.expressions[0])),
        (bool(query.group), "GROUP BY", source.token("GROUP BY", "GROUP")),
        (bool(query.partition), "QUALIFY", source.token("QUALIFY")),
        (query.distinct, "DISTINCT", source.token("DISTINCT")),
        (bool(query.order or query.limit), "ORDER BY and LIMIT", source.token("ORDER", "ORDER BY", "LIMIT")),
        (query.options.refresh is not None, "refresh", source.token("REFRESH")),
        (query.options.memory is not None, "memory", source.token("MEMORY")),
    ]
    for there, name, where in used:
        if there:
            raise source.error(f"{name} cannot be combined with {what}", where, "select its rows")


def reject_stream_join(
    query: Query, streams: list[ScopeEntry], entries: list[ScopeEntry], source: SourceText
) -> None:
    """Decides which joins of streams that are not windowed tables are supported.

    One stream with tables, by equalities; two streams, by one at least, if something bounds what is kept: an
    amount of memory, or a band on event time that has both ends.
    """
    options = query.options
    bands = [join for join in query.joins if isinstance(join, Band)]
    if len(streams) == 1:
        if bands:
            fact = f"{streams[0].ref.alias} is a stream, and joins tables by = alone"
            raise source.error(fact, streams[0].node, f"compare columns of one table, or {_WINDOW}")
        return
    first, last = streams[0], streams[-1]
    if len(entries) > 2:
        hint = f"join two, or {_WINDOW}"
        raise source.error("a query joins one stream with tables, or two streams", last.node, hint)
    if len(bands) == len(query.joins):
        hint = f"add one, such as {first.ref.alias}.id = {last.ref.alias}.id"
        raise source.error("streams are joined by an equality", last.node, hint)
    if options.memory is None and not any(band.bounds_time for band in bands):
        fact = f"the join of {first.ref.alias} and {last.ref.alias} would grow without end"
        hint = (
            "bound the memory: WITH (memory = '64 MB'), or keep the events of some time: "
            "WITH (window = '10 minutes'), or say how far their times may be apart: "
            f"{first.ref.alias}.at - {last.ref.alias}.at BETWEEN two intervals"
        )
        raise source.error(fact, last.node, hint)


def _reject_clauses(query: Query, select: exp.Select, entries: list[ScopeEntry], source: SourceText) -> None:
    relation, token = entries[0].relation, source.token
    alone = isinstance(relation, Stream) and query.options.window is None and len(entries) == 1
    if alone and (query.order or query.limit is not None):
        raise _stream_error(source, relation, "ordered or limited", token("ORDER", "ORDER BY", "LIMIT"))
    if query.order and query.limit is None:
        raise source.error(
            "ORDER BY needs a LIMIT", token("ORDER", "ORDER BY"), "add LIMIT n for the first n rows"
        )
    if query.limit is not None and not query.order:
        raise source.error(
            "LIMIT needs an ORDER BY", token("LIMIT"), "say which rows come first: ORDER BY column"
        )
    if query.offset and not query.order:
        raise source.error(
            "OFFSET needs ORDER BY and LIMIT", token("OFFSET", "LIMIT"), "write both before it"
        )
    grouped = bool(query.group) or query.having != Truth(True)
    parts = [
        (grouped, "GROUP BY", "grouped", token("GROUP", "GROUP BY", "HAVING")),
        (
            bool(query.aggregates) and not grouped,
            "an aggregate",
            "aggregated",
            source.at(select.expressions[0]),
        ),
        (query.distinct, "DISTINCT", "made distinct", token("DISTINCT")),
        (bool(query.order), *_ordering(query, source)),
    ]
    used = [part for part in parts if part[0]]
    if len(used) > 1:
        raise source.error(
            f"{used[0][1]} and {used[1][1]} cannot be combined", used[1][3], "choose one of them"
        )
    for _, what, done, where in used:
        if query.joins and any(isinstance(e.relation, Stream) for e in entries):
            bounded = query.options.window is not None and query.options.memory is None
            if not bounded:
                raise source.error(f"{what} over a join of streams needs a window", where, _WINDOW)
        if alone:
            raise _stream_error(source, relation, done, where)


def _ordering(query: Query, source: SourceText) -> tuple[str, str, Position]:
    if query.partition:
        return "QUALIFY", "ordered", source.token("QUALIFY")
    return "ORDER BY", "ordered", source.token("ORDER", "ORDER BY")


def _reject_options(query: Query, streams: list[ScopeEntry], reader: OptionReader) -> None:
    """Raise SqlError for an option that does not fit what the query reads."""
    options = query.options
    reader.check_condition(query)
    if options.window is not None and not streams:
        hint = "leave it out: a table keeps its rows until they are deleted"
        raise reader.error("window is for streams, and the query reads tables", "window", hint)
    sums = [a for a in (*query.aggregates, *query.measures) if a.function == "SUM" and a.type.is_exact]
    if options.refresh is not None and query.grouped and sums:
        hint = "sum a DOUBLE column, or leave refresh out"
        raise reader.error(f"{sums[0]} over groups cannot be deferred", "refresh", hint)
    if options.refresh is not None and streams and options.window is None:
        hint = f"{streams[0].ref.alias} is a stream: {_WINDOW}"
        raise reader.error("refresh is for answers over tables", "refresh", hint)
    if options.absent is not None:
        _reject_absent(query, streams, reader)
    for entry in streams if options.window is not None else ():
        if entry.relation.open:
            hint = f"declare its columns: CREATE STREAM {quote(entry.relation.name)} (name TYPE, ...)"
            raise reader.error(f"{entry.relation.name} is an open stream and has no windows", "window", hint)
    if options.memory is not None and len(streams) < 2:
        raise reader.error("memory is for joins of streams", "memory", "leave it out")
    banded = len(streams) == 2 and any(isinstance(join, Band) and join.timed for join in query.joins)
    for name in ("time", "late"):
        if getattr(options, name) is not None and options.window is None and not (banded and name == "late"):
            raise reader.error(f"{name} needs a window", name, "add window = '10 minutes', or leave it out")
    if options.window is not None and (options.time is not None or options.late is not None):
        for entry in streams:
            assert isinstance(entry.relation, Stream)
            try:
                event_time(options, entry.ref, entry.relation)
            except BadAmount as error:
                name = "late" if options.time is None else "time"
                raise reader.error(error.fact, name, error.hint) from None


def _reject_absent(query: Query, streams: list[ScopeEntry], reader: OptionReader) -> None:
    """Raise SqlError unless `absent` asks for keys of one stream."""
    several = len(query.tables) > 1 or query.is_composed
    if several or not query.distinct or query.options.refresh is not None:
        key = streams[0].relation.names[0] if streams and not streams[0].relation.open else "host"
        name = streams[0].relation.name if streams else "beats"
        hint = f"write SELECT DISTINCT {key} FROM {name}; for keys of a table, NOT EXISTS (SELECT ...)"
        raise reader.error("absent is for the distinct keys of one stream", "absent", hint)
    for item in query.items:
        if isinstance(item.expression, Column) and is_expression(item.expression.name):
            hint = "name the columns that make a key"
            raise reader.error(f"{item.expression} is no column, and absent needs columns", "absent", hint)


def _stream_error(
    source: SourceText, relation: Table | Stream, done: str, where: exp.Expr | Position
) -> SqlError:
    fact = f"{relation.name} is a stream and cannot be {done}"
    hint = _WITHOUT.get(done, "")
    if relation.open:
        table = f"CREATE TABLE {quote(relation.name)} (..., PRIMARY KEY (...))"
        return source.error(fact, where, f"{hint}define a table: {table}")
    return source.error(fact, where, f"{hint}{_WINDOW}")
