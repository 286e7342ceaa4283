"""Groups, outer joins, absence and sequences in a pipeline: as in an engine, whatever workers do."""

from __future__ import annotations

import pytest

from tests.spark.simulated import clear_live_shards
from tests.spark.test_limited import EXPIRING, TIMED, World

GROUPS = [
    "SELECT site, COUNT(*) AS n, COUNT(DISTINCT rank) AS m FROM pages GROUP BY site HAVING COUNT(*) > 1",
    f"SELECT page, COUNT(*) AS n FROM hits GROUP BY page HAVING COUNT(*) >= 2 {EXPIRING}",
    f"SELECT p.site, MAX(h.ms) AS most FROM hits h JOIN pages p ON h.page = p.page GROUP BY p.site {TIMED}",
    "SELECT page, rank FROM pages QUALIFY ROW_NUMBER() OVER (PARTITION BY site ORDER BY rank) <= 1",
]
RANKED = [
    "SELECT page, rank FROM pages ORDER BY rank DESC LIMIT 2 OFFSET 1",
    f"SELECT h.ms, p.site FROM hits h JOIN pages p ON h.page = p.page ORDER BY h.ms DESC LIMIT 2 {EXPIRING}",
    f"SELECT DISTINCT p.site FROM hits h JOIN pages p ON h.page = p.page {TIMED}",
    "SELECT site, COUNT(*) FILTER (WHERE rank > 2) AS high FROM pages GROUP BY site",
]
OUTER = [
    "SELECT p.page, q.page AS other FROM pages p LEFT JOIN pages q ON p.rank = q.page",
    f"SELECT p.page, h.ms FROM pages p LEFT JOIN hits h ON p.page = h.page {EXPIRING}",
    f"SELECT p.page, h.ms FROM hits h FULL JOIN pages p ON p.page = h.page {TIMED}",
    "SELECT page FROM pages WHERE rank > 2 UNION ALL SELECT page FROM pages WHERE site = 'a'",
    "SELECT page FROM pages p WHERE rank IN (SELECT page FROM pages q WHERE q.site = 'b')",
    f"SELECT p.page, h.ms FROM hits h RIGHT JOIN pages p ON p.page = h.page {EXPIRING}",
    "SELECT page FROM pages p WHERE rank NOT IN (SELECT page FROM pages q WHERE q.site = 'b')",
]
ABSENT = [
    f"SELECT p.page FROM pages p WHERE NOT EXISTS (SELECT 1 FROM hits h WHERE h.page = p.page) {EXPIRING}",
    "SELECT * FROM pages p WHERE NOT EXISTS"
    f" (SELECT 1 FROM buys b WHERE b.page = p.page AND b.price > 20) {TIMED}",
    "SELECT DISTINCT page FROM hits WITH (window = '8 seconds', absent = 'forever')",
    "SELECT DISTINCT page FROM hits WHERE ms > 20 WITH (window = '8 seconds', absent = '40 seconds')",
    "SELECT DISTINCT page FROM buys WITH (window = '10 seconds', time = 'at', absent = '1 minute')",
]
SEQUENCES = [
    "SELECT h.ms, b.price FROM hits h FOLLOWED BY buys b ON h.page = b.page WITHIN '5 minutes'"
    " WHERE h.ms > 20",
    "SELECT h.ms FROM buys b FOLLOWED BY hits h ON b.page = h.page WITHIN '30 seconds'",
    "SELECT a.at AS first, b.at AS last FROM hits a FOLLOWED BY hits b ON a.page = b.page"
    " FOLLOWED BY buys c ON b.page = c.page WITHIN '2 minutes'",
]


@pytest.mark.parametrize(
    "queries",
    [GROUPS, RANKED, OUTER, ABSENT, SEQUENCES],
    ids=["groups", "ranked", "outer", "absence", "sequences"],
)
def test_deltas_are_those_of_an_engine(tmp_path, queries):
    """Batches run twice, workers lose engines, subscriptions come and go, time passes without changes."""
    world = World(tmp_path, queries, 4)
    for number in range(9):
        if number == 5:
            world.change(add=[(20, queries[0])], replace=[(2, queries[-1])], remove=[1])
        added = number == 5
        world.batch(0 if number in (4, 7) else 9, passes=0 if added else None, crash=number % 3 == 1)
        if number % 2:
            clear_live_shards()
        world.check()
    assert sum(world.emitted.values()) > 12
