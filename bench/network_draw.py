"""Shared by the scripts that draw figures of networks: rows kept by seed, means with their spread, panels.

A *row* is one measurement: `panel` (the workload), `x`, `index` (the scheme), `seed`, and measures by name.
A sweep is kept in one CSV file. Measuring a part of it again (some seeds, some x) replaces these rows, so a
long sweep can be measured piece by piece; tables and plots are made of all rows that are there.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import Rows
from numpy.typing import NDArray

_KEY = ("panel", "x", "index", "seed")
_MARKS = "osD^vP*Xhd<>"
_COLOURS = [f"C{number}" for number in range(10)]
_ORDER = (
    *("enum-j", "enum-sj", "ref-j", "ref-j+", "rel-sel"),
    *("ref-sj-sub", "ref-sj-tup", "ref-sj-clu", "ref-sj-clu+", "ref-sj-min"),
    *("ref-j+, CN", "rel-sel, CN", "ref-sj-clu+, CN"),
)  # schemes for joins: the same colour in all figures
_PLAIN = ", CN"  # without the caches of CN+: dotted
_WIDTH, _HEIGHT, _DPI, _SHADES = 4.3, 3.9, 90, 48  # of a panel in inches; colours of a file


@dataclass(frozen=True)
class Picture:
    """A measure of a sweep over x, as table and plot, beside what the paper states."""

    name: str
    title: str
    sweep: str
    x: str  # what x is
    unit: str
    value: Callable[[dict[str, Any]], float]
    stated: str
    found: str = ""  # what is seen here, in words
    indexes: tuple[str, ...] = ()  # all, if none
    log_x: bool = False
    log_y: bool = True
    bars: bool = False  # x are names


class Mean(NamedTuple):
    mean: float
    low: float
    high: float

    def text(self) -> str:
        """The mean, and how far the seeds are from it."""
        shown = f"{self.mean:,.0f}" if self.mean >= 100 else f"{self.mean:,.3g}"
        off = max(self.high - self.mean, self.mean - self.low) / self.mean if self.mean else 0
        return f"{shown} ±{off:.0%}" if self.low < self.high else shown


# -- rows --------------------------------------------------------------------------------------------


def merge_rows(path: Path, rows: Rows) -> None:
    """Add rows to a file; those of the same panel, x, scheme and seed are replaced."""
    known = {_key(row): row for row in [*read_rows(path), *rows]}
    kept = sorted(known.values(), key=lambda row: (row["panel"], _order(row["x"]), row["seed"]))
    names = list(dict.fromkeys(name for row in kept for name in row))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(kept)


def read_rows(path: Path) -> Rows:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: _parsed(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _parsed(text: str) -> Any:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and "." not in text and "e" not in text else number


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def _order(x: Any) -> tuple[int, Any]:
    return (1, x) if isinstance(x, str) else (0, x)


def means(rows: Rows, value: Callable[[dict[str, Any]], float]) -> dict[tuple[Any, ...], Mean]:
    """By panel, x and scheme, over the seeds."""
    values: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        values.setdefault(_key(row)[:3], []).append(value(row))
    return {key: Mean(float(np.mean(some)), min(some), max(some)) for key, some in values.items()}


# -- tables and plots --------------------------------------------------------------------------------


def page_of(picture: Picture, rows: Rows, folder: Path, paper: str) -> str:
    """Draw a picture; its part of a page of tables."""
    mine = [row for row in rows if not picture.indexes or row["index"] in picture.indexes]
    found = means(mine, picture.value)
    tables = [table_of(panel, found, picture.x) for panel in dict.fromkeys(key[0] for key in found)]
    file = f"{paper}-{picture.name}.png"
    draw_panels(folder / file, picture, found)
    text = [f"## {picture.name}: {picture.title}", f"{picture.unit}. {_scale(mine)}", *tables]
    text += [f"*Stated:* {picture.stated}"]
    text += [f"*Here:* {picture.found}"] if picture.found else []
    return "\n\n".join([*text, f"![]({file})"]) + "\n"


def _scale(rows: Rows) -> str:
    """What was measured: sizes that are the same in all rows, and the seeds."""
    parts = []
    for name in ("subscriptions", "events", "brokers", "objects"):
        values = {row[name] for row in rows if row.get(name) not in (None, "")}
        if len(values) == 1:
            parts.append(f"{int(values.pop()):,} {name}")
    seeds = sorted({row["seed"] for row in rows})
    return f"{', '.join(parts)}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}."


def table_of(panel: str, found: dict[tuple[Any, ...], Mean], x: str) -> str:
    """Values of x down, schemes across."""
    mine = {key[1:]: mean for key, mean in found.items() if key[0] == panel}
    names = _ordered(name for _, name in mine)
    values = sorted({value for value, _ in mine}, key=_order)
    head = [panel, ""] if panel else []
    lines = [*head, f"| {x} | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    for value in values:
        cells = (mine[value, name].text() if (value, name) in mine else "" for name in names)
        lines.append(f"| {_text(value)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ordered(names: Iterable[str]) -> list[str]:
    """Names, each once; schemes for joins in their order."""
    return sorted(dict.fromkeys(names), key=lambda name: _ORDER.index(name) if name in _ORDER else -1)


def draw_panels(path: Path, picture: Picture, found: dict[tuple[Any, ...], Mean]) -> None:
    """A panel per workload with the same y; seeds as error bars."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys(key[0] for key in found))
    names = _ordered(key[2] for key in found)
    size = (_WIDTH * len(panels) + 1.4, _HEIGHT)
    figure, axes = pyplot.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False)
    for panel, one in zip(panels, axes[0], strict=True):
        values = sorted({key[1] for key in found if key[0] == panel}, key=_order)
        for number, name in enumerate(names):
            mine = {key[1]: mean for key, mean in found.items() if (key[0], key[2]) == (panel, name)}
            if picture.bars:
                alone = len(values) == sum(key[0] == panel for key in found)
                place = (
                    (0.0, 0.8)
                    if alone
                    else ((number - (len(names) - 1) / 2) * 0.8 / len(names), 0.8 / len(names))
                )
                _draw_bars(one, {values.index(value): mean for value, mean in mine.items()}, name, place)
            else:
                _draw_line(one, mine, number, name)
        if picture.bars:
            one.set_xticks(range(len(values)), values, rotation=90, fontsize=8)
        _finish_axes(one, panel, picture, values)
    axes[0][0].set_ylabel(picture.unit)
    if not picture.log_y:
        axes[0][0].set_ylim(0, 1.05 * max(mean.high for mean in found.values()))
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.suptitle(picture.title, fontsize=11)
    if len(names) > 1:
        figure.legend(handles, labels, loc="outside right center", fontsize=8)
    figure.set_layout_engine("constrained")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI)
    pyplot.close(figure)
    _shrink(path)


def _draw_line(axes: Any, mine: dict[Any, Mean], number: int, name: str) -> None:
    values = sorted(mine)
    heights, spread = _heights(mine[value] for value in values)
    scheme = name.removesuffix(_PLAIN)
    number = _ORDER.index(scheme) if scheme in _ORDER else number
    line = "--" if name == "ref-j+" else "-"
    axes.errorbar(
        values,
        heights,
        yerr=spread,
        label=name,
        color=_COLOURS[number % len(_COLOURS)],
        marker=_MARKS[number % len(_MARKS)],
        markersize=4.5,
        linewidth=1.2,
        linestyle=":" if name.endswith(_PLAIN) else line,
        capsize=2,
    )


def _draw_bars(axes: Any, mine: dict[int, Mean], name: str, place: tuple[float, float]) -> None:
    """Bars by number of x; `place` is their offset and width."""
    heights, spread = _heights(mine.values())
    colour = _COLOURS[_ORDER.index(name) if name in _ORDER else 0]
    offset, width = place
    axes.bar(
        np.array(list(mine)) + offset, heights, width, yerr=spread, label=name, color=colour, ecolor="0.3"
    )


def _heights(found: Iterable[Mean]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means, and how far seeds are below and above them."""
    mean, low, high = np.array(list(found)).T
    return mean, np.stack([mean - low, high - mean])


def _finish_axes(axes: Any, panel: str, picture: Picture, values: Iterable[Any]) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_title(panel, fontsize=9)
    axes.set_xlabel(picture.x)
    axes.grid(alpha=0.3)
    if picture.log_y:
        axes.set_yscale("log")
    if picture.bars:
        return
    if picture.log_x:
        axes.set_xscale("log")
    shown = sorted(set(values))
    if len(shown) <= 8:
        axes.set_xticks(shown, minor=False)
        axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.tick_params(axis="x", labelsize=8)


def _short(value: float) -> str:
    """
    >>> _short(250_000), _short(1e6), _short(16_000), _short(0.5)
    ('250k', '1M', '16k', '0.5')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _shrink(path: Path) -> None:
    """Fewer colours make a file a third as long."""
    from PIL import Image

    with Image.open(path) as image:
        small = image.convert("RGB").quantize(_SHADES, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
