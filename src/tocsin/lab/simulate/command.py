"""`tocsin simulate`: runs schemes, prints a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tocsin.errors import UsageError
from tocsin.lab.simulate.networks import SimulateSetting
from tocsin.lab.simulate.run import PAPER, SCHEMES, SchemeResult, Simulation

__all__ = ["choose_schemes", "run_simulation", "show_results"]


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
    table = Table(box=None, pad_edge=False)
    heads = "kB", "times", "hops", "server kB", "IP kB", "latency", "describe B", "us"
    table.add_column("scheme")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for result in results:
        traffic = result.traffic_bytes_per_event
        cells: tuple[Any, ...] = (
            *(f"{traffic / 1e3:,.1f}", f"{traffic / least:,.1f}" if least else ""),
            *(f"{result.hops_per_event:,.1f}", f"{result.server_stress_bytes_per_event / 1e3:,.1f}"),
            *(f"{result.ip_bytes_per_event / 1e3:,.0f}", f"{result.hop_latency:.2f}"),
            *(f"{result.description_bytes_per_event:,.0f}", f"{result.server_us_per_event:,.0f}"),
        )
        table.add_row(result.scheme, *cells)
    how = f"{setting.network}, zones by {setting.zones}"
    if setting.network != "can":
        how = f"{setting.network}, subscriptions placed by {setting.place}"
    console.print(
        f"{setting.workload}, {setting.subscriptions:,} subscriptions, {setting.events:,} events, "
        f"{setting.brokers:,} brokers ({how}), seed {setting.seed}; "
        "per event; contents of a sample are exact.\nkB: between brokers; server kB: what the server sends; "
        "us: to describe an event"
    )
    console.print(table)
