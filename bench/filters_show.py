"""Tocsin's claims about filters, measured: one subcommand per claim or group of claims.

    match     the default index against opindex and counting, three workloads
    large     ten million subscriptions: build, memory, matching, two threads
    apply     Engine.apply, Arrow in and deltas out, against the index alone
    load      a million predicates, a million rows of a template, 100,000 texts
    live      inserts and deletes at a fixed rate during matching
    drift     events whose distribution changes, against an index built after the change
    patterns  10,000 regexes and 100,000 words; a regex that backtracking never ends

    python bench/filters_show.py match
    python bench/filters_show.py large --n 1000000 --no-bar

Answers are compared with brute force or the reference before a time is printed. Standard output has one JSON
object per claim, standard error a readable line; the exit code is 1 if an answer is wrong or a claim does not
hold. Times are the best of `--repeat`, `spread` is how far above that the worst was. Competitors are measured
in turns (a b c a b c ...), so that a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from claims import Claims, parser_of, show_claims
from filters_answers import (
    MILLION,
)
from filters_drift import Halves, show_drift
from filters_live import show_live
from filters_load import show_load
from filters_match import show_apply, show_large, show_match
from filters_patterns import show_patterns

from tocsin.lab.memory import keep_freed

COMMANDS: dict[Callable[[argparse.Namespace], Claims], dict[str, float]] = {
    show_match: {
        "sparse": MILLION,
        "dense": 100_000,
        "interval": 100_000,
        "sparse_events": 10_000,
        "dense_events": 5120,
        "interval_events": 5120,
        "slow_events": 1000,
        "batch": 10_000,
    },
    show_large: {"n": 10 * MILLION, "events": 10_000, "batch": 10_000, "builds": 5},
    show_apply: {"n": MILLION, "events": 50_000, "batch": 10_000},
    show_load: {"predicates": MILLION, "template": MILLION, "texts": 100_000},
    show_live: {
        "n": MILLION,
        "events": 50_000,
        "batch": 10_000,
        "compared": 2000,
        "seconds": 30.0,
        "rate": 100_000,
        "update": 1000,
        "pool": MILLION,
    },
    show_drift: {
        "n": MILLION,
        "attributes": Halves.attributes,
        "population": 150_000,
        "renewed": 0.2,
        "events": 10_000,
        "batch": 1000,
        "steady": 20,
        "batches": 400,
    },
    show_patterns: {
        "regexes": 10_000,
        "words": 100_000,
        "events": 10_000,
        "length": 200,
        "long": 100_000,
        "checked": 10,
    },
}


def parser() -> argparse.ArgumentParser:
    return parser_of(__doc__, COMMANDS, repeat=5)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; 0 if all answers are right and all claims hold."""
    return show_claims(parser().parse_args(argv))


if __name__ == "__main__":
    keep_freed()  # so that only the first build pays for fresh pages
    sys.exit(main())
