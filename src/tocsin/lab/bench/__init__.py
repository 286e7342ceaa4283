"""Measuring: a workload, an experiment per file, and the reference before the clock.

workloads.py   generated stocks: tables, changes, subscriptions of every shape
engine.py      changes per second of the embedded engine, shape by shape

match.py       time per event of matching indexes, on workloads of filters
filters.py     these workloads: sparse, dense, interval
words.py       keywords, products, prefixes
forms.py       the same in DNF and CNF
drift.py       subscriptions and events that change their habits
patterns.py    regular expressions and lines of text
draws.py       drawing millions by column
check.py       right answers without any index
"""

__all__: list[str] = []
