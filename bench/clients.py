"""Many subscriptions of one client: how long they take to make, and a change that concerns all of them.

    python bench/clients.py [--subscriptions 600] [--rows 1000]

A server and a client over loopback. Contents are compared with the engine's own before a time is printed.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import tocsin

SHAPES = {
    "join": "SELECT symbol, rating FROM stocks JOIN reviews USING (symbol) WHERE per < {x} AND rating >= 2",
    "top-k": "SELECT symbol, per FROM stocks WHERE volume > {x} ORDER BY per LIMIT 5",
    "minimum": "SELECT MIN(per) FROM stocks WHERE volume > {x}",
    "filter": "SELECT * FROM stocks WHERE per BETWEEN {x} AND 400",
    "distinct": "SELECT DISTINCT sector FROM stocks WHERE per > {x}",
}


def bag(rows: list[dict]) -> Counter:
    return Counter(repr(sorted(row.items())) for row in rows)


def engine_with(rows: int) -> tocsin.Engine:
    engine = tocsin.Engine()
    engine.execute(
        "CREATE TABLE stocks (symbol STRING, per DOUBLE, volume BIGINT, sector STRING, PRIMARY KEY (symbol));"
        "CREATE TABLE reviews (id BIGINT, symbol STRING, rating DOUBLE, PRIMARY KEY (id))"
    )
    stocks = [
        {"symbol": f"S{i}", "per": 200 + i % 200, "volume": i, "sector": f"sector {i % 20}"}
        for i in range(rows)
    ]
    engine.apply("stocks", stocks)
    engine.apply("reviews", [{"id": i, "symbol": f"S{i % 50}", "rating": i % 10} for i in range(rows // 4)])
    return engine


def measure(shape: str, text: str, subscriptions: int, rows: int) -> None:
    engine = engine_with(rows)
    top = 201 if shape == "join" else 0
    texts = [text.format(x=top + (i % 7) * 0.1 if shape == "join" else i % 30) for i in range(subscriptions)]
    with tocsin.serve(engine, "127.0.0.1:0") as server, tocsin.connect(f"127.0.0.1:{server.port}") as client:
        client.subscribe(texts[0])
        engine.upsert("stocks", {"symbol": "S1", "per": 50.0, "volume": 10**6, "sector": "new"})
        start = time.perf_counter()
        made = client.subscribe_all(texts, seconds=120)
        entered = time.perf_counter() - start
        took = []
        for i in range(5):
            change = {
                "symbol": "S3",
                "per": (500.0, 40.0)[i % 2] - i,
                "volume": 10**6,
                "sector": f"newest {i}",
            }
            start = time.perf_counter()
            engine.upsert("stocks", change)
            for one in made:
                one.wait(engine.last_seq)
            took.append(time.perf_counter() - start)
        for one in (made[0], made[-1], made[subscriptions // 2]):
            wanted = engine.subscribe(one.sql)
            assert bag(one.content()) == bag(engine.content(wanted)), one.sql
            assert any(change.deltas for change in one.follow(0)), "the changes concern it"
        print(
            f"{shape:9} {subscriptions} subscriptions made in {entered:.2f} s; "
            f"a change that concerns all: {1000 * sorted(took)[2]:.0f} ms (worst {1000 * max(took):.0f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscriptions", type=int, default=600)
    parser.add_argument("--rows", type=int, default=1000)
    given = parser.parse_args()
    for shape, text in SHAPES.items():
        measure(shape, text, given.subscriptions, given.rows)


if __name__ == "__main__":
    main()
