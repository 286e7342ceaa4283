"""Compiled loops over arrays.

candidates.py       matching against an immutable segment: all paths but bits, starting with the lists
dimension_pairs.py  ... by two dimensions, and without an access path
value_pairs.py      ... by two values; which pairs of dimensions to have
bits.py             ... bit-sliced, 512 events at a time
verify.py           does a conjunction hold? Buffers of what was found
mutable_match.py    matching against a mutable segment; mutable_update.py: adding and removing
ordering.py         entries of a batch by attribute, dimension and event; matches by row and slot
cost.py             what each way to find a conjunction costs
assemble.py         a segment put together
primitives.py       prefetch, sorted search, hashing, words of 512 events
scan.py             every conjunction tested for every event
"""
