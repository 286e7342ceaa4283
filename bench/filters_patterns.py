"""Regexes and words: `patterns` of `filters_show.py`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from claims import Claim, Claims, best, in_turns, say, timed
from filters_answers import (
    SAMPLE,
    built_from,
    matching,
)

from tocsin.lab.bench.brute_force import brute_answers, check_answers, reference_answers
from tocsin.lab.bench.draws import (
    event_maps,
    offsets_of,
    subscription_table,
)
from tocsin.lab.bench.match import (
    STREAM,
    event_rows,
)
from tocsin.lab.bench.text_workloads import regex_set, texts, word_set

BOMB, ORDINARY = "(a+)+$", r"[a-z]+\d$"
MATCHED = {BOMB: 0, ORDINARY: 1}  # which of "aaa" and "b1"


def show_patterns(options: argparse.Namespace) -> Claims:
    """Regexes and words, each as their own subscriptions."""
    regexes = regex_set(options.regexes, options.seed)
    about = word_set(max(1, options.regexes // 5), options.seed)
    yield matched_patterns("regexes", "rlike", regexes, about, options)
    words = word_set(options.words, options.seed)
    yield matched_patterns("words", "contains", words, words, options)
    yield no_backtracking(options)


def pattern_table(op: str, patterns: Sequence[str]) -> Any:
    count = len(patterns)
    return subscription_table(
        offsets_of(np.ones(count, np.int64)), attribute=["text"] * count, op=[op] * count, text=list(patterns)
    )


def text_events(lines: Any) -> Any:
    count = len(lines)
    return pa.table({"texts": event_maps(offsets_of(np.ones(count, np.int64)), ["text"] * count, lines)})


def matched_patterns(
    name: str, op: str, patterns: Sequence[str], words: list[str], options: argparse.Namespace
) -> Claim:
    """Build, compare with the reference (words: also with brute force), and measure."""
    events = text_events(texts(options.events, options.length, options.seed, words))
    table = pattern_table(op, patterns)
    first = events.slice(0, options.checked)
    say(f"building an index of {len(patterns):,} {name}")
    began = time.perf_counter()
    index = built_from(table)
    index.match(event_rows(first))  # the matcher is built on first use
    build_s = time.perf_counter() - began
    found = np.sort(index.match(event_rows(first)))
    everyone = np.arange(len(patterns))
    if op == "contains":
        check_answers(f"auto with {name}", found, brute_answers(table, first))
        everyone = everyone[:: max(1, len(everyone) // SAMPLE)]
    mine = found[np.isin(found >> 32, everyone)]
    check_answers(f"auto with {name}", mine, reference_answers(STREAM, table, event_rows(first), everyone))
    rows = event_rows(events)
    matches = len(index.match(rows))
    index.wait()
    fastest = best([timed(matching(index, [rows])) for _ in range(options.repeat)])
    return Claim(f"patterns {name}", fastest.seconds, "s for the batch", at_most=2.0).show(
        options,
        patterns=len(patterns),
        events=options.events,
        characters=options.length,
        us_per_event=fastest.us(options.events),
        spread=fastest.spread,
        build_s=build_s,
        matches=matches,
    )


def no_backtracking(options: argparse.Namespace) -> Claim:
    """`(a+)+$` against aaa...ab beside an ordinary regex; neither matches."""
    lines = ["a" * (options.long - i) + "b" for i in range(10)]  # all different, so that none is skipped
    rows, short = event_rows(text_events(lines)), event_rows(text_events(["aaa", "b1"]))
    runs = {}
    for regex in (BOMB, ORDINARY):
        index = built_from(pattern_table("rlike", [regex]))
        check_answers(f"auto with {regex}", index.match(rows), np.empty(0, np.int64))
        check_answers(f"auto with {regex}", index.match(short), np.array([MATCHED[regex]]))
        runs[regex] = matching(index, [rows])
    found = in_turns(runs, options.repeat)
    ratio = found[BOMB].seconds / found[ORDINARY].seconds
    return Claim("patterns backtracking", ratio, f"times {ORDINARY}", at_most=5.0).show(
        options,
        regex=BOMB,
        characters=options.long,
        ms_per_event={name: 1e3 * one.seconds / len(lines) for name, one in found.items()},
        spread={name: one.spread for name, one in found.items()},
    )
