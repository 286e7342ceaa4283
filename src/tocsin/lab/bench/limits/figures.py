"""What a figure of the thesis is: how it is measured, its rows, its claims with bars.

    chapterN.FIGURES ─► figures() ─► measure(name, setting) ─► LimitsResult: rows, claims

>>> figure_of("3.7").x
'v - x'
>>> figure_of("3.6")
Traceback (most recent call last):
...
tocsin.errors.UsageError: figure 3.6 is not measured
hint: one of ...
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tocsin.errors import UsageError
from tocsin.lab.bench.claim import Claim

__all__ = [
    "FigureRow",
    "LimitsFigure",
    "LimitsResult",
    "LimitsSetting",
    "X",
    "figure_of",
    "figures",
]

Say = Callable[[str], None]
X = float | int | str


class FigureRow(NamedTuple):
    """One point of a figure; `stated` is what the thesis says of it, a number or words, if anything."""

    workload: str
    policy: str
    x: X
    value: float
    stated: float | str | None = None


@dataclass(frozen=True)
class LimitsSetting:
    """`runs`: None is the figure's own number. `data`: the file of figures over data that is not ours."""

    runs: int | None = None
    seed: int = 0
    data: Path | None = None


@dataclass(frozen=True)
class LimitsResult:
    """Rows, and the claims about them; `note` says how they were measured."""

    rows: list[FigureRow]
    claims: list[Claim]
    note: str = ""


@dataclass(frozen=True)
class LimitsFigure:
    """One figure: its axes, how many runs it takes, and a function that measures it."""

    name: str
    title: str
    x: str
    y: str
    runs: int
    measure: Callable[[LimitsSetting, Say], LimitsResult]
    stated: str = ""  # what the thesis says of the figure as a whole
    needs_data: bool = False

    def run(self, setting: LimitsSetting, say: Say = lambda _: None) -> LimitsResult:
        """Measure it; without the data that it needs, an error says which."""
        if self.needs_data and (setting.data is None or not setting.data.is_file()):
            given = "" if setting.data is None else f": there is no file {setting.data}"
            raise UsageError(
                f"figure {self.name} needs the daily maximum temperatures of Melbourne, 1981-1990{given}",
                hint="--data FILE, a header and one number per line (3650 values); it is not part of Tocsin",
            )
        return self.measure(setting, say)


@cache
def figures() -> dict[str, LimitsFigure]:
    """All figures by name, chapter by chapter."""
    package = importlib.import_module("tocsin.lab.bench.limits")
    chapters = [m.name for m in pkgutil.iter_modules(package.__path__) if m.name.startswith("chapter")]
    found: dict[str, LimitsFigure] = {}
    for chapter in sorted(chapters):
        for figure in importlib.import_module(f"{package.__name__}.{chapter}").FIGURES:
            assert figure.name not in found, figure.name
            found[figure.name] = figure
    return found


def figure_of(name: str) -> LimitsFigure:
    """The figure of a name."""
    if name not in figures():
        raise UsageError(f"figure {name} is not measured", hint=f"one of {', '.join(figures())}")
    return figures()[name]
