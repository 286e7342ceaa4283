"""`tocsin bench`: the options of each experiment. A command reads them, measures and prints the results.

engine   changes per second of the embedded engine, shape by shape
match    time per event of matching indexes
join     time per event of join strategies
rank     time and messages per change of methods for top-k and minima
ranges   time per change under subscriptions with several ranges
single   time of one event, one row, one subscription at a time
spark    changes per second on Spark
limits   figures of T07, chapters 2 and 3
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from tocsin.commands.output import PROBLEM, print_json, report_errors, stdout
from tocsin.errors import UsageError
from tocsin.lab.bench.output import Count, Json, progress, wants_json
from tocsin.lab.bench.services import add_services

__all__ = ["app"]

app = typer.Typer(
    help="""Measure speed. Each experiment compares its answers with a reference before it prints a time.

\b
  tocsin bench                                   every shape, on the embedded engine
  tocsin bench engine --shape join --shape topk --subscriptions 5000
  tocsin bench match --workload dense --n 100000 --index scan
  tocsin bench join --kind band --groups 60
  tocsin bench rank --kind topk --k 10 --subscriptions 1000000
  tocsin bench ranges --shape min --shape count
  tocsin bench single --workload subscribe
  tocsin bench limits --figure 3.9 --runs 5

Without the name of an experiment, `engine` runs with its defaults.""",
    add_completion=False,
    rich_markup_mode=None,
)

Share = float | None


@app.callback(invoke_without_command=True)
def _bench(context: typer.Context, as_json: Json = False) -> None:
    context.obj = as_json
    if context.invoked_subcommand is None:
        bench_engine(context, as_json=as_json)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


# -- engine ------------------------------------------------------------------------------------------


@app.command("engine")
def bench_engine(
    context: typer.Context,
    shape: Annotated[list[str] | None, typer.Option(help="A shape; may be repeated. Default: all.")] = None,
    subscriptions: Annotated[int, typer.Option(help="Subscriptions of each shape.", min=1)] = 500,
    changes: Annotated[int, typer.Option(help="Changes to apply.", min=1)] = 1000,
    batch: Annotated[int, typer.Option(help="Changes per batch.", min=1)] = 250,
    repeat: Annotated[int, typer.Option(help="Measure so many times; the best counts.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Seed of subscriptions and changes.")] = 0,
    as_json: Json = False,
) -> None:
    """Changes per second of the embedded engine, shape by shape, on generated stocks."""
    from tocsin.lab.bench.engine import SHAPES, EngineSetting, measure_engine, show_results

    as_json = wants_json(context, as_json)
    with report_errors(as_json):
        for name in shape or []:
            if name not in SHAPES:
                raise UsageError(f"there is no shape {name!r}", hint=f"one of {', '.join(SHAPES)}")
        results = measure_engine(shape or [], EngineSetting(subscriptions, changes, batch, repeat, seed))
    if as_json:
        print_json([result.to_dict() for result in results])
    else:
        show_results(results, stdout())
    if not all(result.ok for result in results):
        raise typer.Exit(PROBLEM)


# -- match -------------------------------------------------------------------------------------------

Batch = Annotated[
    Count,
    typer.Option(help="Events per batch. Default: 10,000, or as few as have 20 million matches.", min=1),
]
Attributes = Annotated[Count, typer.Option(help="Number of attributes (keywords: words).", min=1)]
Smallest = Annotated[Count, typer.Option(help="Fewest predicates per subscription.", min=1)]
Largest = Annotated[Count, typer.Option(help="Most predicates per subscription.", min=1)]
EventSize = Annotated[Count, typer.Option(help="Attributes per event.", min=0)]
Equality = Annotated[
    Share, typer.Option(help="sparse, dense: share of =; the rest is half <=, half >=.", min=0, max=1)
]
Domain = Annotated[Count, typer.Option(help="Values per attribute.", min=1)]
Zipf = Annotated[Share, typer.Option(help="Skew of attributes and values.", min=0)]
Fixed = Annotated[Count, typer.Option(help="sparse, dense: predicates on the first attributes.", min=0)]
Width = Annotated[Share, typer.Option(help="interval: width, as a share of the domain.", min=0, max=1)]
Operator = Annotated[str | None, typer.Option(help="keywords: =, is_not_null or between.")]
Sets = Annotated[Share, typer.Option(help="products: share of IN.", min=0, max=1)]
Priced = Annotated[Share, typer.Option(help="products: share of subscriptions with a price.", min=0, max=1)]
Prefixed = Annotated[Share, typer.Option(help="prefix: share of prefixes.", min=0, max=1)]
Length = Annotated[Count, typer.Option(help="prefix: most letters of a prefix.", min=1)]


@app.command("match")
def bench_match(
    context: typer.Context,
    workload: Annotated[
        str, typer.Option(help="sparse, dense, interval, keywords, products or prefix.")
    ] = "sparse",
    n: Annotated[int, typer.Option("--n", help="Subscriptions.", min=1)] = 100_000,
    events: Annotated[int, typer.Option(help="Events.", min=1)] = 2000,
    index: Annotated[
        str, typer.Option(help="Indexes, separated by commas. Default: auto, opindex and counting.")
    ] = "",
    threads: Annotated[int, typer.Option(help="Threads, for indexes that use several.", min=1)] = 1,
    batch: Batch = None,
    repeat: Annotated[int, typer.Option(help="Measure so many times; the best counts.", min=1)] = 5,
    seed: Annotated[int, typer.Option(help="Seed of subscriptions, events and the sample.", min=0)] = 0,
    engine: Annotated[bool, typer.Option("--engine", help="Also measure Engine.apply.")] = False,
    attributes: Attributes = None,
    smallest: Smallest = None,
    largest: Largest = None,
    event_size: EventSize = None,
    equality: Equality = None,
    domain: Domain = None,
    zipf: Zipf = None,
    fixed: Fixed = None,
    width: Width = None,
    operator: Operator = None,
    sets: Sets = None,
    priced: Priced = None,
    share: Prefixed = None,
    length: Length = None,
    as_json: Json = False,
) -> None:
    """Time per event of matching indexes, on a generated workload of filters.

    \b
      tocsin bench match --n 1000000 --index auto,opindex
      tocsin bench match --workload keywords --event-size 120 --json
      tocsin bench match --workload dense --n 100000 --engine

    First the answers for 50 events are compared with brute force and with the reference; a difference ends
    the command with exit code 1. An index goes by the name of its class; the command reports an index that
    does not support all subscriptions of a workload and leaves it out.
    """
    from tocsin.lab.bench.match import MatchSetting

    options = {
        "attributes": attributes, "smallest": smallest, "largest": largest, "event_size": event_size,
        "equality": equality, "domain": domain, "zipf": zipf, "fixed": fixed, "width": width,
        "operator": operator, "sets": sets, "priced": priced, "share": share, "length": length,
    }  # fmt: skip
    setting = MatchSetting(threads, batch, repeat, engine, seed)
    _bench_match(workload, (n, events), _names(index), options, setting, wants_json(context, as_json))


def _bench_match(
    workload: str,
    sizes: tuple[int, int],
    names: list[str],
    options: dict[str, Any],
    setting: Any,
    as_json: bool,
) -> None:
    """`sizes`: how many subscriptions and events. Options that are None stay at the workload's defaults."""
    from tocsin.lab.bench.filter_workloads import check_workload, make_workload
    from tocsin.lab.bench.match import choose_indexes, measure_match, show_results

    n, events = sizes
    with progress("match", as_json) as say:
        choose_indexes(names, setting.threads)  # reports a bad name before anything is drawn
        check_workload(workload, **options)
        say(f"drawing {n:,} subscriptions and {events:,} events")
        work = make_workload(workload, n, events, setting.seed, **options)
        report = measure_match(work, names, setting, say)
    if not as_json:
        show_results(report, stdout())
        return
    print_json(
        {
            "workload": workload,
            "n": n,
            "events": events,
            "threads": setting.threads,
            "batch": report.batch,
            "repeat": setting.repeat,
            "seed": setting.seed,
            "options": {name: value for name, value in options.items() if value is not None},
            "flatten_s": report.flatten_s,
            "results": [result.to_dict() for result in report.results],
            "left_out": report.left_out,
        }
    )


# -- join --------------------------------------------------------------------------------------------

Strategies = Annotated[
    str,
    typer.Option(
        help="Strategies, separated by commas. Default: naive, selectfirst, ssi, hotspot, dynamic; band: all."
    ),
]
Joining = Annotated[
    Share, typer.Option(help="equality: rows that join an event, on average. Default: 1000.", min=0.001)
]
Selected = Annotated[
    float,
    typer.Option(help="equality: share of queries whose own range holds the event.", min=1e-9, max=1),
]
Affected = Annotated[float, typer.Option(help="Share of queries that an event affects.", min=1e-9, max=1)]
Scattered = Annotated[float, typer.Option(help="Share of queries outside all groups.", min=0, max=1)]
OwnDeviation = Annotated[
    float, typer.Option(help="equality: deviation of the midpoints of own ranges, as a share.", min=0)
]
KeyDeviation = Annotated[
    float, typer.Option(help="equality: deviation of the keys, as a share; 0 is uniform.", min=0)
]


@app.command("join")
def bench_join(
    context: typer.Context,
    kind: Annotated[
        str, typer.Option(help="equality (R.B = S.B) or band (S.B - R.B in a range).")
    ] = "equality",
    queries: Annotated[int, typer.Option(help="Standing queries.", min=1)] = 100_000,
    rows: Annotated[int, typer.Option(help="Rows of the table that events join.", min=1)] = 100_000,
    groups: Annotated[int, typer.Option(help="Stabbing groups of the ranges on that table.", min=1)] = 30,
    strategy: Strategies = "",
    joining: Joining = None,
    selected: Selected = 0.1,
    affected: Affected = 0.05,
    scattered: Scattered = 0,
    own_deviation: OwnDeviation = 0.25,
    key_deviation: KeyDeviation = 0,
    events: Annotated[int, typer.Option(help="Most events.", min=1)] = 2000,
    seconds: Annotated[float, typer.Option(help="Longest time of a measurement.", min=0.001)] = 0.5,
    repeat: Annotated[int, typer.Option(help="Measure so many times; the best counts.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Seed of queries, rows and events.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Events per second of join strategies, on generated queries over two tables.

    \b
      tocsin bench join                              100,000 equality joins, about 1000 joining rows
      tocsin bench join --joining 20 --affected 0.003 --strategy naive,selectfirst,ssi
      tocsin bench join --kind band --groups 60 --affected 0.02 --json
      tocsin bench join --scattered 0.5 --strategy selectfirst,ssi,hotspot

    An event is a new row of R. The time is that of finding the queries it affects; writing their result rows
    is timed separately. The lengths of ranges follow from --selected and --affected.

    \b
    equality   naive, joinfirst-e, joinfirst-s, selectfirst, ssi, hotspot, dynamic
    band       qouter, douter, mj, ssi, hotspot

    First the answers for 50 events are compared with those of NAIVE; a difference ends the command with exit
    code 1.
    """
    from tocsin.lab.bench.join import JoinSetting, Timing

    as_json = wants_json(context, as_json)
    with report_errors(as_json):
        setting = JoinSetting(
            queries, rows, groups, min(1000, rows) if joining is None else joining, selected, affected,
            scattered, own_deviation, key_deviation, events, seed,
        )  # fmt: skip
    _bench_join(kind, setting, _names(strategy), Timing(repeat, seconds), as_json)


def _bench_join(kind: str, setting: Any, names: list[str], timing: Any, as_json: bool) -> None:
    from tocsin.join.strategies.base import JoinKind
    from tocsin.lab.bench.join import choose_strategies, draw_joins, measure_joins, show_results

    with progress("join", as_json) as say:
        if kind not in {known.value for known in JoinKind}:
            raise UsageError(f"there is no kind of join {kind!r}", hint="equality or band")
        if kind == JoinKind.EQUALITY.value and setting.joining > setting.rows:
            raise UsageError(
                f"{setting.joining:,g} rows cannot join an event: there are {setting.rows:,}",
                hint="--joining, or --rows",
            )
        choose_strategies(JoinKind(kind), names)  # reports a bad name before anything is drawn
        say(f"drawing {setting.queries:,} queries and {setting.rows:,} rows")
        work = draw_joins(JoinKind(kind), setting)
        report = measure_joins(work, names, timing, say)
    if not as_json:
        show_results(report, stdout())
        return
    print_json(
        {
            "kind": kind,
            "queries": setting.queries,
            "rows": setting.rows,
            "groups": work.groups,
            "results": [result.to_dict() for result in report.results],
        }
    )


# -- rank --------------------------------------------------------------------------------------------


@app.command("rank")
def bench_rank(
    context: typer.Context,
    kind: Annotated[str, typer.Option(help="topk, or min: the least y of a range.")] = "topk",
    objects: Annotated[int, typer.Option(help="Objects that move.", min=1)] = 10_000,
    subscriptions: Annotated[int, typer.Option(help="Ranges.", min=1)] = 200_000,
    k: Annotated[int, typer.Option(help="topk: objects per range.", min=1)] = 10,
    eps: Annotated[
        float, typer.Option(help="topk: steps that share a box, as a share of k.", min=0, max=1)
    ] = 0,
    method: Annotated[str, typer.Option(help="Methods, separated by commas. Default: all of the kind.")] = "",
    distribution: Annotated[str, typer.Option(help="uniform, clustered, correlated or anti.")] = "uniform",
    events: Annotated[int, typer.Option(help="Changes.", min=1)] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of objects, ranges and events.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Messages, calls and time per change of methods for top-k and minima over ranges.

    \b
      tocsin bench rank                                       top 10 of 200,000 ranges, 10,000 objects
      tocsin bench rank --k 20 --eps 0.5 --method paint-dense,paint-sparse
      tocsin bench rank --kind min --objects 100000 --subscriptions 1000000 --json
      tocsin bench rank --distribution anti --method paint-sparse,paint-dense

    An event picks an object, and draws its new y above or below the old one.

    \b
    topk   paint-dense, paint-sparse, paint-batch, unicast, relax, enumerate
    min    s-cn, s-un, cn

    Contents of a sample of ranges are compared with brute force; a difference ends the command with exit
    code 1. `received` counts the subscriptions reached (enumerate: deltas); `redundancy` is how many more
    were reached than need it, as a share of the latter, one event at a time (a batch reaches fewer: below 0).
    """
    from tocsin.lab.bench.rank import choose_methods, measure_ranks, show_results
    from tocsin.lab.bench.rank_workloads import RankSetting

    as_json = wants_json(context, as_json)
    with progress("rank", as_json) as say:
        choose_methods(kind, _names(method))  # reports a bad name before anything is drawn
        setting = RankSetting(objects, subscriptions, events, distribution, seed)
        results = measure_ranks(kind, _names(method), setting, k, eps, say)
    if not as_json:
        show_results(results, stdout())
        return
    sizes = {"kind": kind, "objects": objects, "subscriptions": subscriptions, "k": k, "eps": eps}
    found = [result.to_dict() for result in results]
    print_json({**sizes, "distribution": distribution, "events": events, "results": found})


# -- ranges ------------------------------------------------------------------------------------------


@app.command("ranges")
def bench_ranges(
    context: typer.Context,
    shape: Annotated[
        list[str] | None, typer.Option(help="min, count, topk or distinct; may be repeated. Default: all.")
    ] = None,
    subscriptions: Annotated[int, typer.Option(help="Subscriptions.", min=1)] = 100_000,
    rows: Annotated[int, typer.Option(help="Rows of the table.", min=1)] = 20_000,
    changes: Annotated[int, typer.Option(help="Changes to time.", min=1)] = 1000,
    batch: Annotated[int, typer.Option(help="Changes per batch.", min=1)] = 100,
    repeat: Annotated[int, typer.Option(help="Measure so many times; the best counts.", min=1)] = 3,
    texts: Annotated[bool, typer.Option("--texts", help="SQL texts instead of a template.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of subscriptions and rows.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Time per change under subscriptions with two ranges and an equality, in every order of writing.

    \b
      tocsin bench ranges                                     100,000 subscriptions of each shape
      tocsin bench ranges --shape topk --texts --json

    One of the ranges varies from subscription to subscription, or both do. `ratio` compares the slowest
    order of writing with subscriptions that have one range. Contents of 5 subscriptions are compared with
    the reference before anything is timed; a difference ends the command with exit code 1.
    """
    from tocsin.lab.bench.ranges import RangeSetting, measure_ranges, show_results

    as_json = wants_json(context, as_json)
    with progress("ranges", as_json) as say:
        setting = RangeSetting(subscriptions, rows, changes, batch, repeat, texts, seed)
        results = measure_ranges(shape or [], setting, say)
    if not as_json:
        show_results(results, stdout())
        return
    print_json({**asdict(setting), "results": [asdict(result) for result in results]})


# -- single ------------------------------------------------------------------------------------------


@app.command("single")
def bench_single(
    context: typer.Context,
    workload: Annotated[
        list[str] | None, typer.Option(help="A workload; may be repeated. Default: all.")
    ] = None,
    subscriptions: Annotated[
        int, typer.Option(help="Subscriptions, where there are many.", min=10)
    ] = 100_000,
    ranked: Annotated[int, typer.Option(help="Top-k subscriptions.", min=1)] = 20_000,
    calls: Annotated[int, typer.Option(help="Calls to time.", min=1)] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of subscriptions and events.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Time of one event, one row, one subscription at a time, and where it goes.

    \b
      tocsin bench single
      tocsin bench single --workload "publish, sparse" --subscriptions 1000000 --json

    Answers are compared before a time is printed; a difference ends the command with exit code 1. The parts
    are timed in a pass of their own, in which reading the clock takes time too.
    """
    from tocsin.lab.bench.single import SingleSetting, measure_single, show_results

    as_json = wants_json(context, as_json)
    with progress("single", as_json) as say:
        setting = SingleSetting(subscriptions, ranked, calls, seed=seed)
        results = measure_single(workload or [], setting, say)
    if not as_json:
        show_results(results, stdout())
        return
    print_json({**asdict(setting), "results": [result.to_dict() for result in results]})


add_services(app)
