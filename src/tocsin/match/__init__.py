"""Stateless filters: which subscriptions does an event, or a row, satisfy?

filters.py     one index per stream or table; matches become deltas
base.py        the protocol: five methods and a check

The default index:

auto.py        fronts and segments, merged by size; removal, and building anew when events change
tiers.py       what is to be merged, and when
front.py       conjunctions that come and go, in lists and chains without an order
melting.py     a segment that has lost most moves into the front
shares.py      where threads write what they find
sifting.py     a segment without what was removed from it
drift.py       does a segment still hang well?
samples.py     a sample of recent events, by which that is decided
segment.py     an immutable set of conjunctions, each on one of six paths
placing.py     which path costs least
arranging.py   a segment put together, path by path
dimensions.py  events spread out over the dimensions of a front or a segment
files.py       versions on disk, to be mapped

The others share one numbering:

coding.py      dimensions and texts of filters and events, numbered
coded.py       what is the same for all of them
scan.py        ask every filter about every event
opindex.py     lists by pivot attribute and operator; with counters, with bitmaps
kindex.py      lists by value, conjunctions by size
betree.py      a tree by attribute and value in turn
phases.py      two phases: predicates first (predicates.py), then conjunctions
counting.py    ... by counting
clustering.py  ... by clusters: propagation, static, dynamic
clusters.py    ... their storage; chances.py, potential.py: what a cluster costs, what a table would save

_kernels/      compiled loops over arrays, a file for each of these
"""
