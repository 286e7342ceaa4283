"""Lookups: as if the table had every row, whatever is cached; what they reject, count and forget."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.engine import Engine, Rooms
from tocsin.enrich.room import EnrichRoom
from tocsin.enrich.scan import EnrichScan
from tocsin.errors import CatalogError, ChangeError, SubscriptionError, UsageError
from tocsin.limits.cache import CACHE_POLICIES

DDL = """
CREATE STREAM sales (sku BIGINT, shop STRING, amount DOUBLE); CREATE STREAM returns (sku DOUBLE);
CREATE TABLE prices (sku BIGINT PRIMARY KEY, price DOUBLE, name STRING);
CREATE TABLE shops (shop STRING PRIMARY KEY, city STRING); CREATE TABLE other (id BIGINT PRIMARY KEY)
"""
PAIR = "SELECT s.sku, p.price, s.amount FROM sales s JOIN prices p ON s.sku = p.sku"
QUERIES = (
    PAIR,
    PAIR + " WHERE p.price > 3 AND s.amount < 8",
    "SELECT r.sku, p.name FROM returns r JOIN prices p ON r.sku = p.sku",
    "SELECT s.sku, p.price, t.city FROM sales s JOIN prices p ON s.sku = p.sku "
    "JOIN shops t ON s.shop = t.shop",
)
PRICES = {sku: {"sku": sku, "price": float(sku % 7), "name": "x" * sku} for sku in range(0, 20, 2)}
SHOPS = {shop: {"shop": shop, "city": shop.upper()} for shop in "abc"}


class Elsewhere:
    """Rows that are fetched; remembers what was asked."""

    def __init__(self, rows: dict[Any, dict[str, Any]], arrow: bool = False) -> None:
        self.rows, self.arrow, self.asked = rows, arrow, []

    def __call__(self, keys: list[Any]) -> Any:
        assert len(keys) == len(set(keys))
        self.asked.append(sorted(keys))
        found = [self.rows[key] for key in keys if key in self.rows]
        return pa.Table.from_pylist(found) if self.arrow and found else found


def engine(room: Any = EnrichRoom, **more: Any) -> Engine:
    made = Engine(rooms=Rooms(enrich=room), **more)
    made.execute(DDL)
    return made


def looked_up(
    memory: str | int = 5, policy: str = "lru", room: Any = EnrichRoom, **more: Any
) -> tuple[Engine, Elsewhere]:
    e, prices = engine(room, **more), Elsewhere(PRICES)
    e.lookup("prices", prices, key="sku", memory=memory, policy=policy)
    return e, prices


sales = st.fixed_dictionaries(
    {"sku": st.none() | st.integers(0, 19), "shop": st.sampled_from([*"abcd", None]), "amount": st.just(5.0)}
)
returns = st.fixed_dictionaries({"sku": st.sampled_from([None, 1.5, 2.0, 4.0, 7.0, -0.0, 1e300])})
steps = st.lists(st.tuples(st.lists(sales, max_size=5), st.lists(returns, max_size=3)), max_size=12)


@given(
    steps,
    st.integers(1, 6) | st.just("3 KB"),
    st.sampled_from(CACHE_POLICIES),
    st.sampled_from([EnrichRoom, EnrichScan]),
)
def test_it_is_as_if_the_table_had_every_row(batches, memory, policy, room) -> None:
    e, whole = engine(room), engine()
    e.lookup("prices", Elsewhere(PRICES, arrow=True), key="sku", memory=memory, policy=policy)
    e.lookup("shops", Elsewhere(SHOPS), key="shop", memory=memory, policy=policy, ttl="1 hour")
    whole.apply("prices", list(PRICES.values()))
    whole.apply("shops", list(SHOPS.values()))
    whole.last_seq = 0
    for one in (e, whole):
        one.subscribe_texts(QUERIES)
    for sold, returned in batches:
        one = [made.apply_all({"sales": sold, "returns": returned}) for made in (e, whole)]
        assert list(one[0]) == list(one[1])
        assert e.last_seq == whole.last_seq
        e._check()
        assert len(e.rows("prices")) <= (memory if isinstance(memory, int) else 4)


def test_one_call_fetches_the_missing_keys_of_a_batch() -> None:
    e, prices = looked_up(10)
    e.subscribe(PAIR)
    assert not prices.asked  # until an event needs a row
    e.apply("sales", [{"sku": n} for n in (2, 4, 2, 5, None)])
    e.apply("sales", [{"sku": n} for n in (4, 5, 6)])
    e.publish("sales", {"sku": 6})
    assert prices.asked == [[2, 4, 5], [6]]
    stats = e.stats()["lookups"]["prices"]
    assert (stats["hits"], stats["misses"], stats["fetches"], stats["rows"], stats["absent"]) == (
        4,
        4,
        2,
        3,
        1,
    )


def test_streams_that_no_subscription_joins_fetch_nothing() -> None:
    e, prices = looked_up()
    e.publish("sales", {"sku": 2})
    s = e.subscribe(PAIR)
    e.unsubscribe(s)
    e.publish("sales", {"sku": 2})
    assert not prices.asked


def test_rows_above_the_budget_leave() -> None:
    e, prices = looked_up(2)
    e.subscribe(PAIR)
    for sku in (2, 4, 6, 4, 6, 2):
        e.publish("sales", {"sku": sku})
    assert prices.asked == [[2], [4], [6], [2]]
    assert sorted(e.rows("prices")["sku"].to_pylist()) == [2, 6]
    assert e.stats()["lookups"]["prices"]["evictions"] == 2
    deltas = e.apply("sales", [{"sku": sku} for sku in range(0, 20, 2)])  # more than fits is joined first
    assert len(deltas) == 10 and len(e.rows("prices")) == 2


def _sell_much(memory: str, batches: list[list[dict[str, Any]]]) -> Engine:
    e = engine()
    e.lookup(
        "shops",
        lambda keys: [{"shop": k, "city": k * 4} for k in keys],
        key="shop",
        memory=memory,
        policy="lru",
    )
    e.subscribe("SELECT t.city FROM sales s JOIN shops t ON s.shop = t.shop WHERE t.city = 'nowhere'")
    for batch in batches:
        e.apply("sales", batch)
    return e


def test_a_budget_of_bytes_is_kept() -> None:
    shops = [[{"shop": f"shop {n}-{m}"} for m in range(1000)] for n in range(10)]
    _sell_much("4 MB", shops[:2])  # kernels are compiled
    tracemalloc.start()
    e = _sell_much("4 MB", shops)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    stats = e.stats()["lookups"]["shops"]
    assert stats["bytes"] <= 4 << 20 and stats["rows"] > 4000 and stats["evictions"] > 2000
    assert used < 1.05 * (4 << 20), (used, stats)


def test_what_a_fetch_may_not_do() -> None:
    answers: dict[str, Any] = {
        "fails": lambda keys: 1 // 0,
        "returned a bad row": lambda keys: [{"sku": 2, "price": "much"}],
        "two rows": lambda keys: [{"sku": 2}, {"sku": 2}],
        "returned a change": lambda keys: [{"sku": 2, "_op": "upsert"}],
    }
    for fact, fetch in answers.items():
        e = engine()
        e.lookup("prices", fetch, key="sku", memory=5)
        e.subscribe(PAIR)
        before = e.last_seq
        with pytest.raises(ChangeError, match="failed: ZeroDivisionError" if fact == "fails" else fact):
            e.publish("sales", {"sku": 2})
        assert e.last_seq == before and not len(e.rows("prices"))
        assert e.stats()["lookups"]["prices"]["misses"] == 0
        e._check()
    e = engine()
    e.lookup("prices", lambda keys: e.insert("other", {"id": 1}), key="sku", memory=5)
    e.subscribe(PAIR)
    with pytest.raises(ChangeError, match="fetch changes the engine"):
        e.publish("sales", {"sku": 2})
    assert not len(e.rows("other"))


def test_after_a_failure_it_is_fetched_again() -> None:
    down = [True]

    def fetch(keys: list[int]) -> list[dict[str, Any]]:
        if down[0]:
            raise ConnectionError("no answer")
        return [{"sku": key, "price": 1.0} for key in keys]

    e = engine()
    e.lookup("prices", fetch, key="sku", memory=5)
    e.subscribe(PAIR)
    with pytest.raises(ChangeError, match="ConnectionError: no answer"):
        e.publish("sales", {"sku": 2, "amount": 1.0})
    down[0] = False
    assert len(e.publish("sales", {"sku": 2, "amount": 1.0})) == 1


def test_rows_that_were_not_asked_for_are_ignored() -> None:
    e = engine()
    e.lookup("prices", lambda keys: list(PRICES.values()), key="sku", memory=5)
    e.subscribe(PAIR)
    assert len(e.publish("sales", {"sku": 2})) == 1 and len(e.rows("prices")) == 1


def test_a_bad_event_leaves_the_cache_consistent() -> None:
    e, _ = looked_up(1)
    e.subscribe(PAIR)
    with pytest.raises(ChangeError):
        e.apply("sales", [{"sku": 2}, {"sku": "two"}])
    bad: list[Any] = []
    assert len(e.apply("sales", [{"sku": 2}, {"sku": "two"}, {"sku": 4}], dead_letters=bad)) == 2
    assert len(bad) == 1 and len(e.rows("prices")) == 1
    e._check()


def test_a_row_is_fetched_again_after_its_ttl() -> None:
    now = [datetime(2024, 5, 1, tzinfo=UTC)]
    e, price = engine(clock=lambda: now[0]), [1.0]
    e.lookup("prices", lambda keys: [{"sku": 2, "price": price[0]}], key="sku", memory=5, ttl="10 seconds")
    e.subscribe(PAIR)

    def sold() -> list[float]:
        return [delta.row["price"] for delta in e.publish("sales", {"sku": 2})]

    assert sold() == [1.0]
    price[0] = 2.0
    now[0] += timedelta(seconds=9)
    assert sold() == [1.0]
    now[0] += timedelta(seconds=1)
    assert sold() == [2.0]
    now[0] += timedelta(minutes=1)
    e.publish("sales", {"sku": 3})  # others expire as well
    assert not len(e.rows("prices"))
    e._check()


def test_only_fetch_changes_the_table() -> None:
    e, _ = looked_up()
    for change in (
        lambda: e.insert("prices", {"sku": 1}),
        lambda: e.delete("prices", {"sku": 1}),
        lambda: e.apply("prices", [{"sku": 1}]),
        lambda: e.apply_all({"sales": [], "prices": pa.table({"sku": [1]})}),
    ):
        with pytest.raises(ChangeError, match="prices is filled by a lookup"):
            change()


def test_subscriptions_that_would_see_only_what_is_cached() -> None:
    e, _ = looked_up()
    for text in (
        "SELECT * FROM prices WHERE price > 3",
        "SELECT COUNT(*) FROM prices",
        "SELECT p.price FROM prices p JOIN other o ON p.sku = o.id",
        "SELECT o.id FROM sales s JOIN other o ON s.sku = o.id JOIN prices p ON p.sku = o.id",
        "SELECT s.sku FROM sales s JOIN prices p ON s.amount = p.price",
    ):
        for subscribe in (e.subscribe, lambda text: e.subscribe_texts([text] * 20)):
            with pytest.raises(SubscriptionError, match="prices is filled by a lookup") as error:
                subscribe(text)
            assert "join a stream with it" in str(error.value)
    assert not e.subscriptions()


def test_tables_that_no_lookup_can_fill() -> None:
    e = engine()
    e.insert("other", {"id": 1})
    e.subscribe("SELECT * FROM shops")
    for table, key, fact in (
        ("sales", "sku", "sales is a stream"),
        ("prices", "price", "'price' is not the primary key of prices"),
        ("other", "id", "other has rows"),
        ("nothing", "id", "there is no stream or table"),
    ):
        with pytest.raises(CatalogError, match=fact):
            e.lookup(table, lambda keys: [], key=key, memory=5)
    with pytest.raises(SubscriptionError, match="shops is filled by a lookup"):
        e.lookup("shops", lambda keys: [], key="shop", memory=5)
    e.insert("shops", {"shop": "a"})  # it is an ordinary table still
    for more, fact in (
        ({"memory": 0}, "memory and ttl are above 0"),
        ({"memory": "5 apples"}, "apples"),
        ({"memory": 5, "policy": "lfd"}, "it knows the future"),
        ({"memory": 5, "policy": "life"}, "is for joins"),
        ({"memory": 5, "policy": "mru"}, "there is no policy 'mru'"),
        ({"memory": None}, "memory cannot be None"),
        ({"memory": 1.5}, "memory cannot be 1.5"),
        ({"memory": 5, "ttl": 5}, "ttl cannot be 5"),
    ):
        with pytest.raises(UsageError, match=fact):
            e.lookup("prices", lambda keys: [], key="sku", **more)

    async def waits(keys: list[Any]) -> list[Any]:
        return []

    for fetch in (waits, "prices"):
        with pytest.raises(UsageError, match="fetch cannot be"):
            e.lookup("prices", fetch, key="sku", memory=5)  # type: ignore[arg-type]
    assert not e.stats()["lookups"]


def test_tables_can_be_dropped_and_saved(tmp_path) -> None:
    e, _ = looked_up()
    s = e.subscribe(PAIR)
    e.publish("sales", {"sku": 2})
    e.save(tmp_path / "saved")
    loaded = Engine.load(tmp_path / "saved")
    assert not len(loaded.rows("prices"))
    prices = Elsewhere(PRICES)
    loaded.lookup("prices", prices, key="sku", memory=5)
    assert len(loaded.publish("sales", {"sku": 2})) == 1 and prices.asked == [[2]]
    e.unsubscribe(s)
    e.execute("DROP TABLE prices; CREATE TABLE prices (sku BIGINT PRIMARY KEY)")
    e.insert("prices", {"sku": 1})
    e._check()


def test_replays_decide_alike() -> None:
    kept = []
    for _ in range(2):
        e, prices = looked_up(20, "heeb")
        e.subscribe("SELECT r.sku, p.price FROM returns r JOIN prices p ON r.sku = p.sku")
        for step in range(300):
            e.apply("returns", [{"sku": float((step * step + n) % 40)} for n in range(3)])
        kept.append((prices.asked, sorted(e.rows("prices")["sku"].to_pylist())))
    assert kept[0] == kept[1]
