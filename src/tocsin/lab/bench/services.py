"""Commands of `tocsin bench` for what is around an engine: pipelines, servers, brokers, limits."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tocsin.commands.output import PROBLEM, print_json, report_errors, stdout
from tocsin.lab.bench.output import Count, Json, progress, wants_json

__all__ = ["add_services"]


# -- spark -------------------------------------------------------------------------------------------


def bench_spark(
    context: typer.Context,
    kind: Annotated[str, typer.Option(help="filters, join or topk.")] = "filters",
    subscriptions: Annotated[int, typer.Option(help="Subscriptions.", min=1)] = 100_000,
    changes: Annotated[int, typer.Option(help="Events, or changes of tables.", min=1)] = 200_000,
    batch: Annotated[
        Count,
        typer.Option(
            help="join, topk: changes per micro-batch. Default: 20,000; 100,000 with --scale.", min=1
        ),
    ] = None,
    scale: Annotated[
        bool,
        typer.Option("--scale", help="Processor time per shard, with 1, 4 and 16 shards, by shape."),
    ] = False,
    shape: Annotated[
        list[str] | None, typer.Option(help="With --scale: a shape; may be repeated. Default: all.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="With --scale: a plot, as PNG or SVG.")] = None,
    workload: Annotated[str, typer.Option(help="filters: sparse or dense.")] = "sparse",
    smallest: Annotated[
        int,
        typer.Option(help="filters: fewest predicates per subscription; 1 is output-heavy.", min=1, max=4),
    ] = 2,
    repeat: Annotated[int, typer.Option(help="filters: measure so many times; the best counts.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Seed of subscriptions and changes.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Changes per second on Spark, end to end, beside the engine and plain Spark SQL.

    \b
      tocsin bench spark --subscriptions 1000000                  filters: Parquet in, Parquet out
      tocsin bench spark --workload dense                         plain Spark SQL is slow here
      tocsin bench spark --kind join --changes 1200000            two minutes at 10,000 changes/s
      tocsin bench spark --kind topk --subscriptions 1000000 --changes 600000 --batch 10000 --json
      tocsin bench spark --scale --json                           how shards scale out, without Spark

    Answers are compared before a time is printed: all matches of filters; for tables, the contents of 200
    subscriptions at the end. Plain Spark SQL is left out above 100,000 filters, and answers only 1,000 joins
    or top-k queries.
    """
    as_json = wants_json(context, as_json)
    if scale:
        _bench_scale(tuple(shape or ()), subscriptions, changes, batch, seed, picture, as_json)
        return
    from tocsin.lab.bench.spark import SparkSetting, measure_spark, show_results

    with progress("spark", as_json) as say:
        batch = 20_000 if batch is None else batch
        setting = SparkSetting(kind, subscriptions, changes, batch, seed, workload, smallest, repeat)
        results = measure_spark(setting, say)
    if not as_json:
        show_results(results, stdout())
        return
    print_json({**asdict(setting), "results": [result.to_dict() for result in results]})


def _bench_scale(
    shapes: tuple[str, ...],
    subscriptions: int,
    changes: int,
    batch: int | None,
    seed: int,
    picture: Path | None,
    as_json: bool,
) -> None:
    from tocsin.lab.bench.spark_scale import (
        SHAPES,
        SHARDS,
        ScaleSetting,
        measure_scale,
        plot_scale,
        show_scale,
    )

    with progress("spark", as_json) as say:
        batch = min(changes, 100_000) if batch is None else batch
        setting = ScaleSetting(shapes or tuple(SHAPES), SHARDS, subscriptions, changes, batch, seed)
        rates = measure_scale(setting, say)
    if picture is not None:
        plot_scale(rates, picture)
    if as_json:
        print_json({"shapes": rates})
    else:
        show_scale(rates, stdout())


# -- server ------------------------------------------------------------------------------------------


def bench_server(
    context: typer.Context,
    part: Annotated[
        list[str] | None,
        typer.Option(help="single, batch, listeners or restart; may be repeated. Default: all."),
    ] = None,
    subscriptions: Annotated[int, typer.Option(help="Subscriptions.", min=1)] = 100_000,
    rate: Annotated[int, typer.Option(help="single: changes per second, one per request.", min=1)] = 2000,
    seconds: Annotated[float, typer.Option(help="How long single and batch take, about.", min=0.1)] = 20.0,
    connections: Annotated[int, typer.Option(help="single: connections that publish.", min=1)] = 8,
    batch: Annotated[int, typer.Option(help="Events per request.", min=1)] = 1000,
    listeners: Annotated[int, typer.Option(help="Open SSE followers.", min=1)] = 5000,
    listen_seconds: Annotated[float, typer.Option(help="How long they listen.", min=0.1)] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of subscriptions and events.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """A server, its publishers and its followers on this machine, synced.

    \b
      tocsin bench server                                     all parts, 100,000 subscriptions
      tocsin bench server --part single --rate 1000 --json
      tocsin bench server --part listeners --listen-seconds 1800
      tocsin bench server --part restart --subscriptions 1000000

    Every delta that a follower receives is compared with what it must receive.
    """
    from tocsin.lab.bench.server import ServerBenchSetting, measure_server, show_server

    as_json = wants_json(context, as_json)
    with progress("server", as_json) as say:
        setting = ServerBenchSetting(
            subscriptions, rate, seconds, connections, batch, listeners, listen_seconds, seed
        )
        result = measure_server(part or [], setting, say)
    if as_json:
        print_json(result.to_dict())
    else:
        show_server(result, stdout())


# -- brokers -----------------------------------------------------------------------------------------


def bench_broker(
    context: typer.Context,
    subscriptions: Annotated[int, typer.Option(help="Subscriptions of all clients.", min=1)] = 10_000,
    clients: Annotated[int, typer.Option(help="Clients, one connection each.", min=1)] = 50,
    messages: Annotated[int, typer.Option(help="Messages of a round.", min=1)] = 60_000,
    batch: Annotated[int, typer.Option(help="Messages per frame.", min=1)] = 64,
    repeat: Annotated[int, typer.Option(help="Rounds; the best counts.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Seed of subscriptions and messages.", min=0)] = 0,
    rate: Annotated[int, typer.Option(help="Messages/s while latency is measured.", min=1)] = 20_000,
    as_json: Json = False,
) -> None:
    """Messages and deliveries per second of one broker process, and latency, over loopback."""
    from tocsin.lab.bench.brokers import BrokerSetting, measure_broker, show_broker

    as_json = wants_json(context, as_json)
    with report_errors(as_json):
        result = measure_broker(BrokerSetting(subscriptions, clients, messages, batch, repeat, seed, rate))
    if as_json:
        print_json(result.to_dict())
    else:
        show_broker(result, stdout())


# -- limits ------------------------------------------------------------------------------------------


def bench_limits(
    context: typer.Context,
    figure: Annotated[list[str], typer.Option(help="A figure, as 3.9; may be repeated. all: every one.")],
    runs: Annotated[Count, typer.Option(help="Runs. Default: the figure's own number.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first run.", min=0)] = 0,
    data: Annotated[Path | None, typer.Option(help="Figures of REAL: the daily temperatures.")] = None,
    no_bar: Annotated[
        bool, typer.Option("--no-bar", help="Only measure: a missed bar is not a failure.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Figures of T07, chapters 2 (refresh within a time) and 3 (joins in bounded memory).

    \b
      tocsin bench limits --figure 3.9                    50 runs of 5000 steps
      tocsin bench limits --figure 3.14 --data melbourne-daily-max-temperatures.csv --json

    Claims with their bars follow the table; one that does not hold ends the command with exit code 1.
    """
    from tocsin.lab.bench.limits.figures import LimitsSetting, figure_of, figures
    from tocsin.lab.bench.limits.show import show_figure

    as_json = wants_json(context, as_json)
    results = []
    with progress("limits", as_json) as say:
        names = list(figures()) if figure == ["all"] else figure
        for one in [figure_of(name) for name in names]:
            say(f"figure {one.name}")
            results.append((one, one.run(LimitsSetting(runs, seed, data), say)))
    printed: list[dict[str, Any]] = [
        {
            "figure": one.name,
            "rows": [row._asdict() for row in result.rows],
            "claims": [claim.to_dict() for claim in result.claims],
        }
        for one, result in results
    ]
    if as_json:
        print_json(printed[0] if len(printed) == 1 else printed)
    else:
        for one, result in results:
            show_figure(one, result, stdout())
    if not no_bar and not all(claim.met for _, result in results for claim in result.claims):
        raise typer.Exit(PROBLEM)


def add_services(app: typer.Typer) -> None:
    """Add these commands to `tocsin bench`."""
    app.command("spark")(bench_spark)
    app.command("server")(bench_server)
    app.command("broker")(bench_broker)
    app.command("limits")(bench_limits)
