"""`tocsin bench rank`: options read, a workload drawn, methods measured, results printed."""

from __future__ import annotations

from typing import Annotated

import typer

from tocsin.commands.output import errors_told, print_json, stdout

__all__ = ["bench_rank"]


def bench_rank(
    context: typer.Context,
    kind: Annotated[str, typer.Option(help="topk, or min: the least y of a range.")] = "topk",
    objects: Annotated[int, typer.Option(help="Objects that move.", min=1)] = 10_000,
    subscriptions: Annotated[int, typer.Option(help="Ranges.", min=1)] = 200_000,
    k: Annotated[int, typer.Option(help="topk: how many of a range.", min=1)] = 10,
    eps: Annotated[
        float, typer.Option(help="topk: steps that share a box, as a share of k.", min=0, max=1)
    ] = 0,
    method: Annotated[str, typer.Option(help="Methods, by commas. Default: all of the kind.")] = "",
    distribution: Annotated[str, typer.Option(help="uniform, clustered, correlated or anti.")] = "uniform",
    events: Annotated[int, typer.Option(help="Changes.", min=1)] = 2000,
    seed: Annotated[int, typer.Option(help="Of objects, ranges and events.", min=0)] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON value on stdout instead of text.")
    ] = False,
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
    code 1. `received` are subscriptions reached (of enumerate: deltas), `redundancy` those reached needlessly
    as a share of those that must be, events one by one (so a batch, which reaches fewer, is below 0).
    """
    from tocsin.commands.progress import Display
    from tocsin.lab.bench.rank import choose_methods, measure_ranks, show_results
    from tocsin.lab.bench.rank_workloads import RankSetting

    as_json = as_json or bool(context.obj)
    with errors_told(as_json), Display("bench rank") as display:
        names = [name.strip() for name in method.split(",") if name.strip()]
        choose_methods(kind, names)  # what is wrong is said before anything is drawn
        setting = RankSetting(objects, subscriptions, events, distribution, seed)
        results = measure_ranks(kind, names, setting, k, eps, display.say)
    if not as_json:
        show_results(results, stdout())
        return
    print_json(
        {
            "kind": kind,
            "objects": objects,
            "subscriptions": subscriptions,
            "k": k,
            "eps": eps,
            "distribution": distribution,
            "events": events,
            "results": [result.to_dict() for result in results],
        }
    )
