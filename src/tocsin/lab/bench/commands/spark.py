"""`tocsin bench spark`: options read, measured, printed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tocsin.commands.output import errors_told, print_json, stdout

__all__ = ["bench_spark"]


def bench_spark(
    context: typer.Context,
    kind: Annotated[str, typer.Option(help="filters, join or topk.")] = "filters",
    subscriptions: Annotated[int, typer.Option(help="How many.", min=1)] = 100_000,
    changes: Annotated[int, typer.Option(help="Events, or changes of tables.", min=1)] = 200_000,
    batch: Annotated[int, typer.Option(help="join, topk: changes in a micro-batch.", min=1)] = 20_000,
    workload: Annotated[str, typer.Option(help="filters: sparse or dense.")] = "sparse",
    smallest: Annotated[
        int,
        typer.Option(help="filters: least predicates of a subscription; 1 is output-heavy.", min=1, max=4),
    ] = 2,
    repeat: Annotated[int, typer.Option(help="filters: times to measure; the best counts.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Of subscriptions and changes.", min=0)] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON value on stdout instead of text.")
    ] = False,
) -> None:
    """Changes per second on Spark, end to end, beside the engine and plain Spark SQL.

    \b
      tocsin bench spark --subscriptions 1000000                  filters: Parquet in, Parquet out
      tocsin bench spark --workload dense                         plain Spark SQL is slow here
      tocsin bench spark --kind join --changes 1200000            two minutes at 10,000 changes/s
      tocsin bench spark --kind topk --subscriptions 1000000 --changes 600000 --batch 10000 --json

    Answers are compared before anything is printed: of filters all matches, of tables the contents that 200
    subscriptions hold at the end. Plain Spark SQL is left out above 100,000 filters, and asked only 1,000
    joins or top-k.
    """
    from tocsin.commands.progress import Display
    from tocsin.lab.bench.spark import SparkSetting, measure_spark, show_results

    as_json = as_json or bool(context.obj)
    with errors_told(as_json), Display("bench spark") as display:
        setting = SparkSetting(kind, subscriptions, changes, batch, seed, workload, smallest, repeat)
        results = measure_spark(setting, display.say)
    if not as_json:
        show_results(results, stdout())
        return
    print_json({**asdict(setting), "results": [result.to_dict() for result in results]})
