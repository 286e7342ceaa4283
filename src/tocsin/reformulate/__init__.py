"""Changes as messages that say whom they are for, and clients that maintain contents from them alone.

base.py        the protocol of schemes for joins of two tables
joins.py       ten schemes: semijoins with five skylines, joined rows, relaxed selections, unicast
decompose.py   joins of many tables as semijoins of two: forms, costs, the greedy choice
multiway.py    their messages
envelope.py    joins with several selection attributes on each table
longer.py      semijoins with everything else, for comparison
split.py       selections over rows with a large payload
relaxed.py     changes to all ranges that hold them, for comparison
contents.py    what clients keep
extremes.py    minima and distinct values over ranges, minima over boxes
topk.py        the first k of a range
boxes.py       the first k of a box
"""
