"""`tocsin bench match`: options read, a workload drawn, indexes measured, results printed."""

from __future__ import annotations

from typing import Annotated

import typer

from tocsin.commands.output import errors_told, print_json, stdout

__all__ = ["bench_match"]


def bench_match(
    context: typer.Context,
    workload: Annotated[
        str, typer.Option(help="sparse, dense, interval, keywords, products or prefix.")
    ] = "sparse",
    n: Annotated[int, typer.Option("--n", help="Subscriptions.", min=1)] = 100_000,
    events: Annotated[int, typer.Option(help="Events.", min=1)] = 2000,
    index: Annotated[str, typer.Option(help="Indexes, by commas. Default: auto, opindex and counting.")] = "",
    threads: Annotated[int, typer.Option(help="Threads, for indexes that have them.", min=1)] = 1,
    batch: Annotated[
        int | None,
        typer.Option(help="Events in a batch. Default: 10,000, or as few as have 20 million matches.", min=1),
    ] = None,
    repeat: Annotated[int, typer.Option(help="Times to measure; the best counts.", min=1)] = 5,
    seed: Annotated[int, typer.Option(help="Of subscriptions, events and the sample.", min=0)] = 0,
    engine: Annotated[bool, typer.Option("--engine", help="Also through Engine.apply.")] = False,
    attributes: Annotated[int | None, typer.Option(help="Attributes (words) there are.", min=1)] = None,
    smallest: Annotated[int | None, typer.Option(help="Predicates per subscription at least.", min=1)] = None,
    largest: Annotated[int | None, typer.Option(help="Predicates per subscription at most.", min=1)] = None,
    event_size: Annotated[int | None, typer.Option(help="Attributes per event.", min=0)] = None,
    equality: Annotated[
        float | None, typer.Option(help="sparse, dense: share of =; of the rest half is <=.", min=0, max=1)
    ] = None,
    domain: Annotated[int | None, typer.Option(help="Values per attribute.", min=1)] = None,
    zipf: Annotated[float | None, typer.Option(help="Skew of attributes and values.", min=0)] = None,
    fixed: Annotated[
        int | None, typer.Option(help="sparse, dense: predicates on the first attributes.", min=0)
    ] = None,
    width: Annotated[
        float | None, typer.Option(help="interval: width, as a share of the domain.", min=0, max=1)
    ] = None,
    operator: Annotated[str | None, typer.Option(help="keywords: =, is_not_null or between.")] = None,
    sets: Annotated[float | None, typer.Option(help="products: share of IN.", min=0, max=1)] = None,
    priced: Annotated[
        float | None, typer.Option(help="products: share of subscriptions with a price.", min=0, max=1)
    ] = None,
    share: Annotated[float | None, typer.Option(help="prefix: share of prefixes.", min=0, max=1)] = None,
    length: Annotated[int | None, typer.Option(help="prefix: letters at most.", min=1)] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON value on stdout instead of text.")
    ] = False,
) -> None:
    """Time per event of matching indexes, on a generated workload of filters.

    \b
      tocsin bench match --n 1000000 --index auto,opindex
      tocsin bench match --workload keywords --event-size 120 --json
      tocsin bench match --workload dense --n 100000 --engine

    The answers for the first 50 events are compared with brute force and with the reference first; a
    difference ends the command with exit code 1. Indexes go by the names of their classes; one that does
    not take all subscriptions of a workload is left out, and that is said.
    """
    from tocsin.commands.progress import Display
    from tocsin.lab.bench.filters import make_workload
    from tocsin.lab.bench.match import Setting, choose_indexes, measure_match, show_results

    as_json = as_json or bool(context.obj)
    options = {
        "attributes": attributes, "smallest": smallest, "largest": largest, "event_size": event_size,
        "equality": equality, "domain": domain, "zipf": zipf, "fixed": fixed, "width": width,
        "operator": operator, "sets": sets, "priced": priced, "share": share, "length": length,
    }  # fmt: skip
    with errors_told(as_json), Display("bench match") as display:
        names = [name.strip() for name in index.split(",") if name.strip()]
        choose_indexes(names, threads)  # what is wrong is said before anything is drawn
        display.say(f"drawing {n:,} subscriptions and {events:,} events")
        work = make_workload(workload, n, events, seed, **options)
        setting = Setting(threads, batch, repeat, engine, seed)
        report = measure_match(work, names, setting, display.say)
    if not as_json:
        show_results(report, stdout())
        return
    print_json(
        {
            "workload": workload,
            "n": n,
            "events": events,
            "threads": threads,
            "batch": report.batch,
            "repeat": repeat,
            "seed": seed,
            "options": {name: value for name, value in options.items() if value is not None},
            "flatten_s": report.flatten_s,
            "results": [result.to_dict() for result in report.results],
            "left_out": report.left_out,
        }
    )
