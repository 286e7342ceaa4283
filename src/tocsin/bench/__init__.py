"""Measuring: a workload, an experiment per file, and the reference before the clock.

workloads.py   generated stocks: tables, changes, subscriptions of every shape
engine.py      changes per second of the embedded engine, shape by shape
"""

__all__: list[str] = []
