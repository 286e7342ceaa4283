"""Stateless filters: which subscriptions does an event, or a row, satisfy?

room.py        MatchRoom: one index per stream or table; matches become deltas
base.py        MatchIndex, the protocol: five methods and a check

The default index:

index.py       Auto: add, remove, match (maintain, candidates, verify), stats, save, open
segments/      immutable and mutable segments, their life cycle, versions on disk
build/         building an immutable segment: costs, the sample of recent events, assembly

The others number dimensions and texts together:

coded.py       dimensions and texts of filters and events, numbered; and a base class
scan.py        every filter tested for every event
published/     indexes of the literature: counting, clustering, k-index, BE-Tree, OpIndex

_kernels/      compiled loops over arrays
"""
