"""Sets of intervals of codes: which contain a value, about how many do, and how can many be queried at once?

partition.py   groups of intervals that share a point (a stabbing partition): the least number of groups
dynamic.py     the same while intervals are inserted and removed: lazy and refined rebuilds
hotspots.py    ... with the large groups apart from the scattered rest
groups.py      the stabbing-set index: one structure per group, following a dynamic partition
intervals.py   which intervals hold a value (interval tree), which rectangles a point (packed R-tree)
histograms.py  about how many intervals contain a value
_kernels/      compiled loops over arrays
"""
