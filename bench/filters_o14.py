"""The figures of O14 (OpIndex, 2014), section 7, at a scale that fits the machine.

    1       d: build and matching time over the number of attributes
    8       memory over N and over the domain
    9       insertion time over N and over the subscription size
    10      matching time over N, subscription size, event size, share of =, domain, Zipf
    11      keywords (queries against tweets and articles): insertion and matching over N
    12      products: insertion and matching over N and subscription size, with = and with IN
    13      CNF and DNF: matching over N and over the number of clauses
    14      prefixes: matching over their share and their length

    python bench/filters_o14.py --scale 0.01
    python bench/filters_o14.py --figure 10a,10f --index opindex,auto

The workloads are `tocsin.lab.bench.filter_workloads`; keywords and products are drawn, not the paper's logs.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
from common import (
    Figure,
    Rows,
    Sweep,
    chosen_figures,
    draw_figures,
    existing,
    main_of,
    parser,
    run_sweep,
    write_csv,
)

from tocsin.lab.bench.filter_workloads import (
    Comparisons,
    cnf_answers,
    cnf_filters,
    dnf_answers,
    dnf_filters,
    draw_groups,
    make_workload,
)
from tocsin.lab.bench.match import CHECKED, MatchSetting, PreparedWorkload, prepare

MILLION = 1_000_000
PLAIN = ("kindex", "betree", "opindexbs", "opindex", "auto")
FORMS = ("opindex", "auto", "scan")  # scan: only if no other supports them
DEFAULTS = Comparisons()
CLAUSES = 5  # of a CNF or DNF, at most

KEYWORDS = {
    "tweets=": {"event_size": 5, "operator": "="},
    "articles=": {"event_size": 120, "operator": "="},
    "tweets-between": {"event_size": 5, "operator": "between"},
    "articles-between": {"event_size": 120, "operator": "between"},
}
PRODUCTS = {"=": {"sets": 0.0, "priced": 0.0}, "in": {"sets": 1.0, "priced": 0.0}}

FIGURES = [
    Figure("1a", "Insertion time over the number of attributes", "attributes", "build_s"),
    Figure("1b", "Matching time over the number of attributes", "attributes", "us_per_event"),
    Figure("8a", "Memory over N", "n", "megabytes"),
    Figure("8b", "Memory over the domain", "domain", "megabytes"),
    Figure("9a", "Insertion time over N", "n", "build_s"),
    Figure("9b", "Insertion time over the subscription size", "size", "build_s"),
    Figure("10a", "Matching time over N", "n", "us_per_event"),
    Figure("10b", "Matching time over the subscription size", "size", "us_per_event"),
    Figure("10c", "Matching time over the event size", "event-size", "us_per_event"),
    Figure("10d", "Matching time over the share of =", "equality", "us_per_event"),
    Figure("10e", "Matching time over the domain", "domain", "us_per_event"),
    Figure("10f", "Matching time over the Zipf exponent", "zipf", "us_per_event"),
    Figure("11a", "Insertion time over N, keywords, =", "tweets=", "build_s"),
    Figure("11b", "Insertion time over N, keywords, between", "tweets-between", "build_s"),
    Figure("11c", "Matching time over N, tweets, =", "tweets=", "us_per_event"),
    Figure("11d", "Matching time over N, articles, =", "articles=", "us_per_event"),
    Figure("11e", "Matching time over N, tweets, between", "tweets-between", "us_per_event"),
    Figure("11f", "Matching time over N, articles, between", "articles-between", "us_per_event"),
    Figure("12a", "Insertion time over N, products, =", "products=", "build_s"),
    Figure("12b", "Insertion time over N, products, IN", "products-in", "build_s"),
    Figure("12c", "Matching time over N, products, =", "products=", "us_per_event"),
    Figure("12d", "Matching time over N, products, IN", "products-in", "us_per_event"),
    Figure("12e", "Matching time over the subscription size, products, =", "products-size=", "us_per_event"),
    Figure(
        "12f", "Matching time over the subscription size, products, IN", "products-size-in", "us_per_event"
    ),
    Figure("13a-cnf", "CNF: matching time over N", "cnf-n", "us_per_event"),
    Figure("13a-dnf", "DNF: matching time over N", "dnf-n", "us_per_event"),
    Figure("13b-cnf", "CNF: matching time over the number of clauses", "cnf-clauses", "us_per_event"),
    Figure("13b-dnf", "DNF: matching time over the number of conjunctions", "dnf-clauses", "us_per_event"),
    Figure("14a", "Matching time over the share of prefixes", "prefix-share", "us_per_event"),
    Figure("14b", "Matching time over the length of prefixes", "prefix-length", "us_per_event"),
]


def sweeps(options: argparse.Namespace) -> dict[str, Sweep]:
    """All sweeps; a workload is drawn only when its point is measured."""
    draw = partial(make_workload, events=options.events, seed=options.seed)
    one = scaled(MILLION, options)
    plain, forms = existing(PLAIN, options.index), existing(FORMS, options.index)
    forms = tuple(name for name in forms if name != "scan" or forms == ("scan",))
    found = {}

    def add(name, parameter, points, indexes=plain, **more):
        found[name] = Sweep(name, parameter, points, indexes or ("scan",), **more)

    def sparse(name, parameter, option, values):
        points = {value: partial(draw, "sparse", one, **{option: value}) for value in values}
        expanded = {value: entries(one, **{option: value}) for value in values}
        add(name, parameter, points, expanded=expanded)

    counts = [scaled(m * MILLION, options) for m in (1, 10, 20, 30, 40)]
    add("n", "N", {n: partial(draw, "sparse", n) for n in counts}, expanded={n: entries(n) for n in counts})
    sparse("attributes", "attributes", "attributes", (20_000, 30_000, 40_000, 50_000, 60_000))
    sparse("size", "largest size", "largest", (4, 8, 12, 16, 20))
    sparse("event-size", "event size", "event_size", (20, 40, 60, 80, 100, 120))
    sparse("equality", "share of =", "equality", (0.2, 0.4, 0.6, 0.8, 1.0))
    sparse("domain", "domain", "domain", (50, 200, 800, 3200, 12800))
    sparse("zipf", "Zipf", "zipf", (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
    counts = [scaled(m * MILLION, options) for m in (1, 2, 3, 4, 5)]
    for name, more in KEYWORDS.items():
        add(name, "N", {n: partial(draw, "keywords", n, **more) for n in counts})
    for name, more in PRODUCTS.items():
        label = "products" + (name if name == "=" else f"-{name}")
        add(label, "N", {n: partial(draw, "products", n, **more) for n in counts})
        sizes = {size: partial(draw, "products", one, largest=size, **more) for size in (4, 8, 12, 16, 20)}
        label = "products-size" + (name if name == "=" else f"-{name}")
        add(label, "largest size", sizes)
    for form in ("cnf", "dnf"):
        counts = [scaled(m * MILLION, options) for m in (1, 5, 10, 15, 20)]
        points = {n: partial(draw, "sparse", n * (CLAUSES + 1) // 2) for n in counts}
        add(f"{form}-n", "N", points, forms, ready=partial(ready_form, form, None))
        points = {c: partial(draw, "sparse", one * (c + 1) // 2) for c in (1, 3, 5, 7, 9)}
        add(f"{form}-clauses", "clauses", points, forms, ready=partial(ready_form, form, "clauses"))
    shares = {share: partial(draw, "prefix", one, share=share) for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)}
    add("prefix-share", "share of prefixes", shares, forms)
    lengths = {length: partial(draw, "prefix", one, length=length) for length in (1, 2, 3, 4, 5, 6)}
    add("prefix-length", "length", lengths, forms)
    return found


def scaled(n: int, options: argparse.Namespace) -> int:
    return max(100, round(n * options.scale))


def entries(n: int, **options) -> float:
    """Postings of an index that writes `<=` and `>=` out value by value."""
    largest, equality = options.get("largest", DEFAULTS.largest), options.get("equality", DEFAULTS.equality)
    domain = options.get("domain", DEFAULTS.domain)
    return n * (1 + largest) / 2 * (equality + (1 - equality) * domain / 2)


def ready_form(form: str, parameter: str | None, value, work, setting: MatchSetting) -> PreparedWorkload:
    """Rows in groups of 1 to 5 (or to the swept number): one subscription each, in CNF or DNF."""
    rows = prepare(work, setting)
    most = CLAUSES if parameter is None else value
    groups = draw_groups(work.n, most, setting.seed)
    filters, answers = (cnf_filters, cnf_answers) if form == "cnf" else (dnf_filters, dnf_answers)
    expected = answers(work.subscriptions, groups, work.events.slice(0, CHECKED))
    return rows._replace(filters=filters(rows.filters, groups), expected=np.asarray(expected))


def main() -> None:
    names = [figure.name for figure in FIGURES]
    options = parser(__doc__.splitlines()[0], names, scale=0.1).parse_args()
    figures = chosen_figures(FIGURES, options.figure)
    known = sweeps(options)
    measured: dict[str, tuple[str, Rows]] = {}
    for name in dict.fromkeys(figure.sweep for figure in figures):
        measured[name] = known[name].parameter, run_sweep(known[name], options)
        write_csv(options.out / f"o14-{name}.csv", measured[name][1])
    draw_figures("O14", figures, measured, options)


if __name__ == "__main__":
    main_of(main)
