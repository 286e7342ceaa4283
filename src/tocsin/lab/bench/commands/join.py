"""`tocsin bench join`: options read, a workload drawn, strategies measured, results printed."""

from __future__ import annotations

from typing import Annotated

import typer

from tocsin.commands.output import errors_told, print_json, stdout

__all__ = ["bench_join"]


def bench_join(
    context: typer.Context,
    kind: Annotated[
        str, typer.Option(help="equality (R.B = S.B) or band (S.B - R.B in a range).")
    ] = "equality",
    queries: Annotated[int, typer.Option(help="Standing queries.", min=1)] = 100_000,
    rows: Annotated[int, typer.Option(help="Rows of the table that events join.", min=1)] = 100_000,
    groups: Annotated[int, typer.Option(help="Stabbing groups of the ranges on that table.", min=1)] = 30,
    strategy: Annotated[
        str,
        typer.Option(
            help="Strategies, by commas. Default: naive, selectfirst, ssi, hotspot, dynamic; of bands all."
        ),
    ] = "",
    joining: Annotated[
        float | None,
        typer.Option(help="equality: rows that join an event, on average. Default: 1000.", min=0.001),
    ] = None,
    selected: Annotated[
        float,
        typer.Option(help="equality: share of queries whose own range holds it.", min=1e-9, max=1),
    ] = 0.1,
    affected: Annotated[
        float, typer.Option(help="Share of queries that an event affects.", min=1e-9, max=1)
    ] = 0.05,
    scattered: Annotated[
        float, typer.Option(help="Share of queries that belong to no group.", min=0, max=1)
    ] = 0,
    own_deviation: Annotated[
        float, typer.Option(help="equality: of the midpoints of own ranges, as a share.", min=0)
    ] = 0.25,
    key_deviation: Annotated[
        float, typer.Option(help="equality: of the keys, as a share of them; 0 is uniform.", min=0)
    ] = 0,
    events: Annotated[int, typer.Option(help="Events, at most.", min=1)] = 2000,
    seconds: Annotated[float, typer.Option(help="A measurement takes about, at most.", min=0.001)] = 0.5,
    repeat: Annotated[int, typer.Option(help="Times to measure; the best counts.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Of queries, rows and events.", min=0)] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON value on stdout instead of text.")
    ] = False,
) -> None:
    """Events per second of join strategies, on generated queries over two tables.

    \b
      tocsin bench join                              100,000 equality joins, about 1000 joining rows
      tocsin bench join --joining 20 --affected 0.003 --strategy naive,selectfirst,ssi
      tocsin bench join --kind band --groups 60 --affected 0.02 --json
      tocsin bench join --scattered 0.5 --strategy selectfirst,ssi,hotspot

    An event is a new row of R; the queries it affects are found, which is what is timed. Writing out their
    result rows is timed by itself. Ranges are made as long as --selected and --affected want them.

    \b
    equality   naive, joinfirst-e, joinfirst-s, selectfirst, ssi, hotspot, dynamic
    band       qouter, douter, mj, ssi, hotspot

    The answers for the first 50 events are compared with NAIVE first; a difference ends the command with
    exit code 1.
    """
    from tocsin.commands.progress import Display
    from tocsin.errors import UsageError
    from tocsin.join.strategies.storage import Kind
    from tocsin.lab.bench.join import Timing, choose_strategies, measure_joins, show_results
    from tocsin.lab.bench.join_workloads import JoinSetting, draw_joins

    as_json = as_json or bool(context.obj)
    with errors_told(as_json), Display("bench join") as display:
        if kind not in {known.value for known in Kind}:
            raise UsageError(f"there is no kind of join {kind!r}", hint="equality or band")
        joining = min(1000, rows) if joining is None else joining
        if kind == Kind.EQUALITY.value and joining > rows:
            raise UsageError(
                f"{joining:,g} rows cannot join an event: there are {rows:,}", hint="--joining, or --rows"
            )
        names = [name.strip() for name in strategy.split(",") if name.strip()]
        choose_strategies(Kind(kind), names)  # what is wrong is said before anything is drawn
        setting = JoinSetting(
            queries, rows, groups, joining, selected, affected, scattered,
            own_deviation, key_deviation, events, seed,
        )  # fmt: skip
        display.say(f"drawing {queries:,} queries and {rows:,} rows")
        work = draw_joins(Kind(kind), setting)
        report = measure_joins(work, names, Timing(repeat, seconds), display.say)
    if not as_json:
        show_results(report, stdout())
        return
    print_json(
        {
            "kind": kind,
            "queries": queries,
            "rows": rows,
            "groups": work.groups,
            "results": [result.to_dict() for result in report.results],
        }
    )
