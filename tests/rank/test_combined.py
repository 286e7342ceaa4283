"""Several extremes, and extremes with aggregates, in one query against the scan; initial answers."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from tests.rank.beside_scan import Beside, scripts
from tests.rank.test_room import Pair
from tocsin.rank.combined import CombinedFamily

EXTREMES = [f"{function}({column})" for function in ("MIN", "MAX") for column in "kndsb"]
SUMS = ["COUNT(*)", "COUNT(s)", "SUM(n)", "AVG(n)", "SUM(d)", "AVG(d)"]
selects = st.tuples(
    st.sampled_from(EXTREMES),
    st.lists(st.sampled_from(EXTREMES + SUMS), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
).map(lambda drawn: _listed([drawn[0], *drawn[1]], drawn[2]))


def _listed(items, random) -> str:
    random.shuffle(items)
    return ", ".join(f"{item} AS v{number}" for number, item in enumerate(items))


@given(selects, scripts)
def test_deltas_equal_those_of_the_scan(select, script) -> None:
    Beside(partial(CombinedFamily, key=("k",)), select).run(script)


def test_a_repeated_item_has_one_component() -> None:
    pair = Pair()
    pair.subscribe("SELECT MIN(y) AS a, COUNT(*), MIN(y) AS b, SUM(x), MAX(y) FROM t WHERE x > 3")
    pair.apply([pair.row() for _ in range(9)])
    pair.compare_contents()
    (stats,) = pair.engines[0].stats()["rank"]["families"]
    assert [component["family"] for component in stats["components"]] == [
        *("extremes", "extremes", "aggregates")
    ]


def test_new_members_compute_their_answers() -> None:
    pair = Pair()
    for n in range(40):
        pair.apply([pair.row() for _ in range(3)])
        pair.subscribe(f"SELECT MAX(s), MIN(y), AVG(y) FROM t WHERE x BETWEEN {n % 7} AND {5 + n % 6}")
        if n % 5 == 4:
            for engine in pair.engines:
                engine.unsubscribe(engine.subscriptions()[n % 4])
    pair.compare_contents()
    assert pair.engines[0].stats()["rank"]["scanned"] == 0
