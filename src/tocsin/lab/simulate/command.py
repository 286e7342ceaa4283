"""`tocsin simulate`: its options; runs schemes, prints a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tocsin.commands.output import print_json, report_errors, stdout
from tocsin.errors import UsageError
from tocsin.lab.simulate.networks import SimulateSetting
from tocsin.lab.simulate.run import PAPER, SCHEMES, SchemeResult, Simulation

__all__ = ["app", "choose_schemes", "run_simulation", "show_results"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)
Json = Annotated[bool, typer.Option("--json", "-j", help="Print one JSON value on stdout instead of text.")]
Tree = Annotated[
    str | None,
    typer.Option(help="can: entry, a tree per message; or fixed, one for all. Default: fixed with --plus."),
]
Plus = Annotated[
    int | None, typer.Option(metavar="REPOSITORY", help="CN+: brokers cache so many payloads each.", min=0)
]
Plain = Annotated[float, typer.Option(help="CN+: share of brokers that know nothing of it.", min=0, max=1)]
Refers = Annotated[
    bool, typer.Option(help="CN+: a payload requested again: the server refers to a broker that has it.")
]
Training = Annotated[
    str,
    typer.Option(help="Zones by traffic: by past messages of clu+, of all, or of clu+ on other rows."),
]
Place = Annotated[
    str, typer.Option(help="Not can: subscriptions are at brokers by interest, or at random ones.")
]
Picture = Annotated[
    Path | None, typer.Option(help="Draw the overlay with its traffic to this file.", dir_okay=False)
]


@app.command()
def simulate(
    scheme: Annotated[str, typer.Option(help="Schemes, separated by commas; all: the paper's nine.")] = "all",
    network: Annotated[str, typer.Option(help="can, cbn, unicast or unicast-gateways.")] = "can",
    zones: Annotated[str, typer.Option(help="Zones are split by load or by traffic.")] = "load",
    training: Training = "clu+",
    tree: Tree = None,
    plus: Plus = None,
    plain: Plain = 0.0,
    refers: Refers = True,
    workload: Annotated[str, typer.Option(help="w1 or w2.")] = "w1",
    subscriptions: Annotated[int, typer.Option(help="Subscriptions.", min=1)] = 100_000,
    events: Annotated[int, typer.Option(help="Rows that enter R.", min=1)] = 1000,
    rows: Annotated[int, typer.Option(help="Rows of R, a window of the newest.", min=10)] = 16_000,
    payload: Annotated[int, typer.Option(help="Bytes of a row beside its attributes.", min=0)] = 100,
    brokers: Annotated[int, typer.Option(help="Brokers.", min=1)] = 1000,
    nodes: Annotated[int, typer.Option(help="Nodes of the topology below them.", min=10)] = 20_000,
    place: Place = "interest",
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.", min=0)] = 0,
    picture: Picture = None,
    as_json: Json = False,
) -> None:
    """Select-joins over a simulated wide-area network: traffic, hops and server time of each scheme.

    \b
      tocsin simulate                                              nine schemes, 100,000 subscriptions
      tocsin simulate --scheme ref-sj-clu+,rel-sel --workload w2 --zones traffic
      tocsin simulate --subscriptions 1000000 --events 10000 --json
      tocsin simulate --network cbn --place random                 where subscribers are decides the gain
      tocsin simulate --plus 400 --scheme ref-j+,ref-sj-clu+ --rows 500 --payload 1000
      tocsin simulate --scheme ref-sj-clu+ --picture overlay.png

    R(A, B) and S(B, C) are joined on B; a subscription has a range of A and a range of C. Rows enter R, and
    a server sends messages so that every subscription keeps its join. Schemes differ in what is sent to whom:

    \b
    enum-j, enum-sj     joined rows, or rows, to each affected subscription, directly
    rel-sel             each row to everyone who selects it, partner or not
    ref-j, ref-j+       each joined row by its region; ref-j+ only those that somebody selects
    ref-sj-*            each row once, with a skyline of its partners: tup, sub, clu, clu+ and min

    All figures are per event. Traffic counts the bytes on every hop between brokers, IP traffic those on
    every link below. Rows that leave the window of R send nothing. The paper's parameters are lost, so the
    workloads are ours: in w2 the rows of a key are alike, chosen for what the paper claims. Look at both.
    Contents of a sample of subscriptions are compared with brute force; a difference ends with exit code 1.
    """
    from tocsin.commands.progress import Display

    with report_errors(as_json):
        chosen = choose_schemes(scheme)
        tree = tree or ("entry" if plus is None else "fixed")
        setting = SimulateSetting(
            *(workload, subscriptions, events, network, zones, seed, tree, brokers, payload, rows, nodes),
            *(place, plus, plain, training, refers),
        )
        with Display("simulate", len(chosen) * events, "events") as display:
            results = run_simulation(setting, chosen, picture, display.say, display.show)
    if as_json:
        print_json({**asdict(setting), "results": [result.to_dict() for result in results]})
    else:
        show_results(setting, results, stdout())


def choose_schemes(names: str) -> list[str]:
    """The schemes of a list separated by commas; `all` are those of the paper.

    >>> choose_schemes("ref-sj-clu+, rel-sel")
    ['ref-sj-clu+', 'rel-sel']
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if wanted == ["all"]:
        return list(PAPER)
    for name in wanted:
        if name not in SCHEMES:
            raise UsageError(f"there is no scheme {name!r}", hint=f"all, or of {', '.join(SCHEMES)}")
    if not wanted:
        raise UsageError("no scheme is named", hint="--scheme all")
    return wanted


def run_simulation(
    setting: SimulateSetting,
    schemes: Sequence[str],
    picture: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
    show: Callable[[int, str], None] = lambda *_: None,
) -> list[SchemeResult]:
    """Results by scheme; the picture is of the last scheme that uses the overlay."""
    if picture is not None:
        from tocsin.lab.simulate.picture import require_matplotlib

        if picture.suffix not in (".png", ".svg", ".pdf"):
            raise UsageError(f"{picture} is no name of a picture", hint="overlay.png, for example")
        require_matplotlib()
    simulation = Simulation(setting, say)
    results = []
    for i, name in enumerate(schemes):

        def show_done(done: int, before: int = i * setting.events, name: str = name) -> None:
            show(before + done, name)

        results.append(simulation.run(name, show_done))
    drawn = [result for result in results if result.links is not None]
    if picture is not None and drawn:
        from tocsin.lab.simulate.picture import draw_overlay

        draw_overlay(picture, simulation.network, drawn[-1], setting)
    return results


def show_results(setting: SimulateSetting, results: Sequence[SchemeResult], console: Console) -> None:
    """A table; traffic is also shown as a multiple of the scheme with the least."""
    least = min(result.traffic_bytes_per_event for result in results)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    heads = "kB", "times", "hops", "server kB", "latency", "points B", "us"
    table.add_column("scheme", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for result in results:
        traffic = result.traffic_bytes_per_event
        cells: tuple[Any, ...] = (
            *(f"{traffic / 1e3:,.1f}", f"{traffic / least:,.1f}" if least else ""),
            *(f"{result.hops_per_event:,.1f}", f"{result.server_stress_bytes_per_event / 1e3:,.1f}"),
            *(
                f"{result.hop_latency:.2f}",
                f"{result.description_bytes_per_event:,.0f}",
                f"{result.server_us_per_event:,.0f}",
            ),
        )
        table.add_row(result.scheme, *cells)
    how = f"{setting.network}, zones by {setting.zones}"
    if setting.network != "can":
        how = f"{setting.network}, subscriptions placed by {setting.place}"
    console.print(
        f"{setting.workload}, {setting.subscriptions:,} subscriptions, {setting.events:,} events, "
        f"{setting.brokers:,} brokers ({how}), seed {setting.seed}; "
        "per event; contents of a sample are exact.\nkB: between brokers; server kB: what the server sends; "
        "points B: descriptions; us: to describe an event"
    )
    console.print(table)
