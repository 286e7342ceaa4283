"""Event patterns against AWS's event-ruler, fetched by Maven (`make test-peers`).

`TOCSIN_TEST_PEERS` is how many pairs of a pattern and an event are compared.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.rules import eventbridge_cases as cases
from tests.rules.eventbridge_oracle import matches
from tocsin.reference import holds
from tocsin.rules.base import Condition
from tocsin.rules.eventbridge import EventBridge

PAIRS = int(os.environ.get("TOCSIN_TEST_PEERS") or 0)
pytestmark = pytest.mark.skipif(not PAIRS, reason="make test-peers fetches event-ruler and compares with it")
RULER = [f"software.amazon.event.ruler:event-ruler:{os.environ.get('TOCSIN_EVENT_RULER', '2.0.1')}"]


def test_event_ruler_matches_the_same_events():
    from tests.kafka.broker import NotReachable, fetched

    java = shutil.which("java")
    try:
        jars = fetched(RULER, alone=False)
    except NotReachable as error:
        pytest.skip(str(error))
    if java is None:
        pytest.skip("there is no java on the path")
    rng = random.Random(11)
    given: list[tuple[dict, Condition, list[dict]]] = []
    while 20 * len(given) < PAIRS:
        pattern = cases.pattern(rng)
        (rule,) = EventBridge().read([pattern])
        if isinstance(rule, Condition):
            given.append((pattern, rule, [cases.event(rng) for _ in range(20)]))
    lines = [json.dumps({"pattern": pattern, "events": events}) for pattern, _, events in given]
    source = Path(__file__).with_name("EventRuler.java")
    command = [java, "-cp", os.pathsep.join(map(str, jars)), str(source)]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-2000:]
    for (pattern, rule, events), answer in zip(given, done.stdout.split(), strict=True):
        for event, found in zip(events, answer, strict=True):
            assert (holds(rule.where, event) is True) == (found == "1"), (pattern, event, found)
            assert matches(pattern, event) == (found == "1"), (pattern, event, found)
