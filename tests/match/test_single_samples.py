"""Few single events are sampled, so that sampling does not show in the slowest hundredth of calls."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from tocsin import Engine


def test_few_events_make_more_calls_than_most() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s")
    engine.subscribe("SELECT * FROM s WHERE a = 3 AND b <= 50")
    event, made, calls = {"a": 1, "b": 7, "c": "x"}, [0], Counter[int]()

    def count(*_: Any) -> None:
        made[0] += 1

    for number in range(8000):
        made[0] = 0
        sys.setprofile(count if number >= 6000 else None)
        engine.publish("s", event)
        sys.setprofile(None)
        if number >= 6000:
            calls[made[0]] += 1
    ((usual, _),) = calls.most_common(1)
    assert sum(count for n, count in calls.items() if n > 1.1 * usual) < 0.01 * calls.total()
