"""Sets of intervals of codes: who contains a value, about how many do, and how can many be asked at once?

Groups of intervals that share a point (stabbing partitions):

partition.py   the least number of groups
base.py        groups while intervals come and go: the protocol, and what all ways share
lazy.py        ... sorted anew when there may be too many
refined.py     ... by a tree of left ends
hotspots.py    ... with the large groups apart from the scattered rest

About how many intervals contain a value:

histograms.py  by groups, of equal width, optimal
counts.py      ... kept up while intervals come and go

Which intervals contain a value:

intervals.py   an interval tree without pointers
rectangles.py  a packed R-tree
packed.py      what both share: packed once, with a tail for late comers
groups.py      the stabbing-set index: a structure for each group
sets.py        ... that follows a dynamic partition

_kernels/      compiled loops over arrays
"""
