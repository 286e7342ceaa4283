"""Benchmarks. Each experiment compares its answers with a reference before it prints a time.

command.py            options of `tocsin bench`, one command per experiment

engine.py             changes per second of the embedded engine, shape by shape, on generated stocks

match.py              time per event of matching indexes
filter_workloads.py   their workloads: sparse, dense, interval; DNF and CNF; drift
text_workloads.py     keywords, products, prefixes; regular expressions and lines of text
draws.py              drawing millions of subscriptions as Arrow columns
brute_force.py        right answers without any index; _kernels.py is its compiled part

join.py               time per event of join strategies, and their workload
rank.py               time and messages of methods for top-k and minima over ranges
rank_methods.py       these methods; rank_workloads.py: objects, ranges and events

single.py             one event, one row, one subscription at a time, and where the time goes

limits/               figures of T07, chapters 2 and 3, one module per chapter

spark.py              filters on Spark, beside the engine and plain Spark SQL
spark_tables.py       joins and top-k on Spark
"""

__all__: list[str] = []
