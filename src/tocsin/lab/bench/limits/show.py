"""Figures as tables and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tocsin.lab.bench.limits.figures import FigureRow, LimitsFigure, LimitsResult, X

__all__ = ["as_markdown", "draw", "show_figure"]

_MARKS = "osD^vP*Xhd<>"


def _workloads(rows: list[FigureRow]) -> Iterator[tuple[str, list[X], list[str], list[FigureRow]]]:
    """Each workload: values of x, policies, rows."""
    for workload in dict.fromkeys(row.workload for row in rows):
        mine = [row for row in rows if row.workload == workload]
        xs, policies = (
            list(dict.fromkeys(values)) for values in zip(*((r.x, r.policy) for r in mine), strict=True)
        )
        yield workload, xs, policies, mine


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"


def _cell(row: FigureRow | None) -> str:
    if row is None:
        return ""
    stated = _number(row.stated) if isinstance(row.stated, int | float) else row.stated
    return _number(row.value) + (f" ({stated})" if stated is not None else "")


def show_figure(figure: LimitsFigure, result: LimitsResult, console: Console) -> None:
    """A table per workload: x down, policies across; what the thesis states stands in brackets."""
    console.print(f"figure {figure.name}: {figure.title}\n{figure.y} by {figure.x}")
    for workload, xs, policies, rows in _workloads(result.rows):
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title=workload, title_justify="left")
        for head in (figure.x, *policies):
            table.add_column(head, justify="right", no_wrap=True)
        cells = {(row.x, row.policy): row for row in rows}
        for x in xs:
            table.add_row(str(x), *(_cell(cells.get((x, policy))) for policy in policies))
        console.print(table)
    if figure.stated:
        console.print(f"stated: {figure.stated}")
    if result.note:
        console.print(result.note)
    for claim in result.claims:
        console.print(str(claim), markup=False)


def as_markdown(figure: LimitsFigure, result: LimitsResult) -> str:
    """The same for a page."""
    lines = [f"## {figure.name}: {figure.title}", "", f"{figure.y} by {figure.x}. {result.note}".rstrip(), ""]
    if figure.stated:
        lines += [f"Stated: {figure.stated}", ""]
    for workload, xs, policies, rows in _workloads(result.rows):
        lines += [f"**{workload}**", "", f"| {figure.x} | {' | '.join(policies)} |"]
        lines.append("| --- |" + " ---: |" * len(policies))
        cells = {(row.x, row.policy): row for row in rows}
        for x in xs:
            lines.append(f"| {x} | {' | '.join(_cell(cells.get((x, policy))) for policy in policies)} |")
        lines.append("")
    return "\n".join(lines + [f"- {claim}" for claim in result.claims] + [""])


def draw(path: Path, figure: LimitsFigure, result: LimitsResult) -> None:
    """A panel per workload, a line per policy."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    parts = list(_workloads(result.rows))
    across = min(3, len(parts))
    down = -(-len(parts) // across)
    picture, axes = pyplot.subplots(
        down, across, figsize=(5 * across, 3.6 * down), layout="constrained", squeeze=False
    )
    for place in axes.flat[len(parts) :]:
        place.set_visible(False)
    for place, (workload, xs, policies, rows) in zip(axes.flat, parts, strict=False):
        numbers = all(isinstance(x, int | float) for x in xs)
        for number, policy in enumerate(policies):
            mine = [row for row in rows if row.policy == policy]
            where = [row.x if numbers else xs.index(row.x) for row in mine]
            mark = _MARKS[number % len(_MARKS)] if len(mine) <= 40 else None
            place.plot(where, [row.value for row in mine], marker=mark, markersize=4, label=policy)
        if not numbers:
            place.set_xticks(range(len(xs)), [str(x) for x in xs])
        place.set_title(workload, fontsize=10)
        place.set_xlabel(figure.x)
        place.set_ylabel(figure.y)
        place.grid(alpha=0.3)
        place.legend(fontsize=7)
    picture.suptitle(f"{figure.name}: {figure.title}", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=130)
    pyplot.close(picture)
