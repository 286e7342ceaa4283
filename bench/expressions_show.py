"""What a subscription on an expression costs beside one on a column: 100,000 of each, answers checked first.

    python bench/expressions_show.py [--subscriptions N] [--events N] [--no-bar]

Both engines get the same events; `total` is a column of them with the value of `price * qty`. Bar: at most
1.5 times, in batches and singly.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

import tocsin

BAR = 1.5
FORMS = {
    "range": ("{x} > :c", "price * qty", "total"),
    "range and text": ("{x} BETWEEN :c AND :d AND brand = :b", "price * qty", "total"),
    "text": ("{x} = :t", "lower(name)", "folded"),
    "truth": ("{x} AND brand = :b AND place = :n", "price < old_price", "cheaper"),
}


def events_of(count: int, seed: int) -> pa.Table:
    """Random events with the columns that expressions compute."""
    draw = np.random.default_rng(seed)
    price, qty = draw.uniform(1, 100, count).round(2), draw.integers(1, 1000, count)
    old = draw.uniform(1, 100, count).round(2)
    names = np.char.add("Name ", draw.integers(0, 50_000, count).astype(str))
    return pa.table(
        {
            "price": price, "qty": qty, "old_price": old, "name": names,
            "brand": np.char.add("b", draw.integers(0, 200, count).astype(str)),
            "place": draw.integers(0, 1000, count), "total": price * qty, "folded": np.char.lower(names),
            "cheaper": price < old,
        }
    )  # fmt: skip


def parameters(count: int, seed: int) -> pa.Table:
    """Random constants; a range holds for few of the events."""
    draw = np.random.default_rng(seed)
    low = draw.uniform(0, 100_000, count)
    return pa.table(
        {
            "id": np.arange(count), "c": 90_000 + low / 10, "d": 91_000 + low / 10,
            "b": np.char.add("b", draw.integers(0, 200, count).astype(str)),
            "t": np.char.add("name ", draw.integers(0, 50_000, count).astype(str)),
            "n": draw.integers(0, 1000, count),
        }
    )  # fmt: skip


def engine_of(condition: str, given: pa.Table) -> tuple[tocsin.Engine, float]:
    """An engine with a subscription for each row, and how long these took to enter."""
    engine = tocsin.Engine()
    engine.execute(
        "CREATE STREAM offers (price DOUBLE, qty BIGINT, old_price DOUBLE, name STRING, brand STRING, "
        "place BIGINT, total DOUBLE, folded STRING, cheaper BOOLEAN)"
    )
    began = perf_counter()
    engine.subscribe_many(f"SELECT brand FROM offers WHERE {condition}", given)
    return engine, perf_counter() - began


def in_turns(calls: Sequence[Callable[[], Any]], repeat: int, events: int) -> list[float]:
    """Microseconds per event of each call: the least of several times, taken in turns."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeat):
        for own, call in zip(times, calls, strict=True):
            began = perf_counter()
            call()
            own.append(perf_counter() - began)
    return [1e6 * min(own) / events for own in times]


def compare(form: str, given: pa.Table, events: pa.Table, repeat: int) -> list[tuple[str, float, float]]:
    """Microseconds per event with the expression and with the column: in batches, and singly."""
    text, expression, column = FORMS[form]
    names = [name for name in given.column_names if name == "id" or f":{name}" in text]
    given = given.select(names)
    for x in (expression, column):  # so that both find everything loaded
        warm = engine_of(text.format(x=x), given.slice(0, 20_000))[0]
        warm.apply("offers", events)
        warm.publish("offers", events.slice(0, 1).to_pylist()[0])
    first, first_entry = engine_of(text.format(x=expression), given)
    second, second_entry = engine_of(text.format(x=column), given)
    one, other = first.apply("offers", events), second.apply("offers", events)
    assert one.subscription.tolist() == other.subscription.tolist(), form
    assert one.seq.tolist() == other.seq.tolist(), form
    print(f"{form}: {len(one) / len(events):.1f} matches per event, the same for both")
    batch = in_turns([lambda e=e: e.apply("offers", events) for e in (first, second)], repeat, len(events))
    rows = events.slice(0, 500).to_pylist()

    def publish(engine: tocsin.Engine) -> None:
        for row in rows:
            engine.publish("offers", row)

    assert all(
        first.publish("offers", row).subscription.tolist()
        == second.publish("offers", row).subscription.tolist()
        for row in rows
    )
    single = in_turns([lambda e=e: publish(e) for e in (first, second)], repeat, len(rows))
    return [
        ("batch", *batch),
        ("single", *single),
        ("entry", first_entry * 1e6 / len(given), second_entry * 1e6 / len(given)),
    ]


def main() -> None:
    """Print a row for each form, and fail above the bar."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-bar", action="store_true")
    args = parser.parse_args()
    given, events = parameters(args.subscriptions, 1), events_of(args.events, 2)
    above = []
    for form in FORMS:
        for way, one, other in compare(form, given, events, args.repeat):
            print(f"  {way:7} expression {one:8.2f} µs  column {other:8.2f} µs  {one / other:5.2f} times")
            if way != "entry" and one > BAR * other:
                above.append((form, way))
    if above and not args.no_bar:
        raise SystemExit(f"above {BAR} times: {above}")


if __name__ == "__main__":
    main()
