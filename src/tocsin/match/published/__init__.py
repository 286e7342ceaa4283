"""Matching indexes from the literature, for comparison; the product does not load them.

Each file says what differs from its paper. All are `CodedIndex`es (`match/coded.py`).

counting.py    F01: two phases, predicates first, then conjunctions by counting
clustering.py  F01: the second phase by clusters: propagation, static, dynamic
clusters.py    ... their storage, the statistics of events, and what a table would save
opindex.py     O14: lists by pivot attribute and operator; with counters, with bitmaps
kindex.py      k-index: lists by value, conjunctions by size
betree.py      BE-Tree: a tree by attribute and value in turn

_kernels/      compiled loops, a file for each of these
"""
