"""Shared by the `*_show.py` scripts: a claim with its bar, timing in turns, a command line."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tocsin.errors import TocsinError
from tocsin.lab.bench.claim import Claim as MeasuredClaim

Run = Callable[[], object]


class Claim(MeasuredClaim):
    """A claim that these scripts print."""

    def show(self, options: argparse.Namespace, **measured: Any) -> Claim:
        """Print all measurements as JSON on stdout, and a readable line on stderr."""
        setting = {"repeat": options.repeat, "seed": options.seed, "machine": machine()}
        print(json.dumps({**self.to_dict(), **setting, **measured}, default=float), flush=True)
        say(str(self))
        return self


Claims = Iterator[Claim]


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


class Best(NamedTuple):
    """The time of the fastest of several runs."""

    seconds: float
    spread: float  # how much longer the slowest took, as a share

    def us(self, events: int) -> float:
        return 1e6 * self.seconds / events


def best(times: Sequence[float]) -> Best:
    """
    >>> best([2.0, 3.0])
    Best(seconds=2.0, spread=0.5)
    """
    return Best(min(times), max(times) / min(times) - 1)


def timed(run: Run) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def in_turns(runs: Mapping[str, Run], repeat: int) -> dict[str, Best]:
    """The best time of each, measured in turns: a b c a b c ..."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            times[name].append(timed(run))
    return {name: best(seconds) for name, seconds in times.items()}


def parser_of(text: str | None, commands: Mapping[Any, Mapping[str, Any]], repeat: int) -> Any:
    """A parser with a subcommand for each `show_` function, with its sizes as options."""
    out = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    known = out.add_subparsers(required=True, metavar="claim")
    for show, sizes in commands.items():
        about = (show.__doc__ or "").splitlines()[0]
        own = known.add_parser(show.__name__.removeprefix("show_"), help=about, description=about)
        for option, size in {**sizes, "repeat": repeat, "seed": 0}.items():
            default = f"(default {size if isinstance(size, str) else format(size, ',')})"
            own.add_argument(f"--{option.replace('_', '-')}", type=type(size), default=size, help=default)
        own.add_argument("--no-bar", action="store_true", help="only measure: a missed bar is not a failure")
        own.set_defaults(show=show)
    return out


def show_claims(options: argparse.Namespace) -> int:
    """Run the chosen subcommand; 0 if all answers are right and all claims hold."""
    try:
        claims = list(options.show(options))
    except TocsinError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if options.no_bar or all(claim.met for claim in claims) else 1
