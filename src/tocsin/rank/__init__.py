"""Top-k, extremes, aggregates and distinct values over one table, for many ranges at once.

`RankRoom` (room.py) sorts subscriptions into families, each of which answers many ranges with one structure;
an expired subscription leaves through `RankRoom.remove`. Families share family.py (row sources, protocol) and
members.py (their subscriptions):

    topk.py         top-k, MIN, MAX          distinct.py       DISTINCT
    aggregates.py   COUNT, SUM, AVG          combined.py       several of these in one query
    recent.py       MIN, MAX over windows
    boxes.py        all of these, over several ranges
    sums.py         exact sums               partitioned.py    rows by values of columns, rows as points
    split.py        filters into ranges, values and a condition
    scan.py         each subscription by itself: the oracle, and the fallback

Below them are the structures: space.py (subscriptions as points of a plane), paint.py (changes as rectangles
of it), points.py (moving objects), extremes.py (minima by range), labels.py (sort keys as numbers), forest.py
(points and boxes of several dimensions).
"""
