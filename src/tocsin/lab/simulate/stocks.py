"""Stocks for select-joins: R has price/earnings ratios as they change, S the ratings of analysts.

J08 has 100 stocks of Yahoo! Finance over seven months, with 460 ratings from 1 to 5, perturbed to 2,300. Its
quotes cannot be had any more, so they are drawn: ratios begin at those of given companies, or at a lognormal
with their median and spread, and change by 2 % a day, every stock once a day; 70 of 100 stocks have ratings,
around a mean of their own. A ratio p is the value 1000 p, a rating 1..5 is mapped to 0..99,999. An event
joins 23 rows on average, as in the paper. J08, section 6.1, figure 10.

>>> work = draw_stocks("w1", 1000, 10, seed=1)
>>> len(work.s_key), len(np.unique(work.s_key)), int(work.event_value.max()) < DOMAIN
(2300, 70, True)
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import UsageError
from tocsin.lab.simulate.workload import DOMAIN, JOINED, KEYS, PAST, Workload, as_values, draw_points
from tocsin.model.columns import Index

__all__ = ["draw_stocks", "read_ratios"]

MEDIAN, SPREAD = 24.2, 0.71  # of the ratios of 456 large companies, and of their logarithms
DAILY, SCALE = 0.02, 1000
RATINGS, EACH = 460, 5  # ratings, and rows perturbed from each
_COLUMN = "Price/Earnings"


def read_ratios(path: Path) -> NDArray[np.float64]:
    """The positive price/earnings ratios of a CSV file with that column."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if _COLUMN not in (reader.fieldnames or ()):
            raise UsageError(f"{path} has no column {_COLUMN!r}", hint="a CSV file with a line of names")
        found = [float(row[_COLUMN]) for row in reader if row[_COLUMN]]
    return np.array([ratio for ratio in found if ratio > 0])


def draw_stocks(
    ranges: str,
    subscriptions: int,
    events: int,
    seed: int,
    rows: int = 16_000,
    ratios: NDArray[np.float64] | None = None,
) -> Workload:
    """Draw everything from one seed; `ranges`: the workload whose subscriptions there are."""
    rng = np.random.default_rng(seed)
    points = draw_points(ranges, subscriptions, rng)
    start = MEDIAN * np.exp(rng.normal(0, SPREAD, KEYS)) if ratios is None else rng.choice(ratios, KEYS)
    s_key, s_value = _ratings(rng)
    count = PAST + rows + events
    days = -(-count // KEYS)
    key = np.argsort(rng.random((days, KEYS)), axis=1)
    change = np.exp(np.cumsum(rng.normal(0, DAILY, (days, KEYS)), axis=0))
    value = as_values(SCALE * start[key] * np.take_along_axis(change, key, axis=1)).ravel()
    past, r, event = (slice(0, PAST), slice(PAST, PAST + rows), slice(PAST + rows, count))
    parts = [column[some] for some in (r, event, past) for column in (key.ravel(), value)]
    return Workload(f"stocks, ranges of {ranges}", points, s_key, s_value, *parts)


def _ratings(rng: np.random.Generator) -> tuple[Index, Index]:
    """Keys and values of S: each rating five times, apart by a normal number."""
    rated = rng.permutation(KEYS)[: int(KEYS * JOINED)]
    key = np.concatenate([rated, rng.choice(rated, RATINGS - len(rated))])
    mean = rng.normal(2.3, 0.5, KEYS)
    rating = np.rint(rng.normal(mean[key], 0.8)).clip(1, 5)
    perturbed = np.repeat(rating, EACH) + rng.normal(0, 0.25, RATINGS * EACH)
    return np.repeat(key, EACH).astype(np.int64), as_values((perturbed - 1) / 4 * DOMAIN)
