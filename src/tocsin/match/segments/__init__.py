"""Segments: sets of conjunctions that are matched together.

base.py          the protocol, the state of a segment in an index, events in its dimensions
immutable.py     each conjunction on its cheapest access path; compaction
mutable.py       conjunctions that come and go
lifecycle.py     the segments of an index: waiting, merging, migrating; owners of slots
merge_policy.py  when to merge, compact, migrate and rebuild
files.py         versions on disk, to be mapped
"""
