"""Messages of minima over boxes, against brute force."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rank.test_extremes import LEAST, MOST, batch, columns, height, run
from tocsin.model.message import MessageKind
from tocsin.reformulate.extremes import BoxExtremes

place = st.sampled_from([0, 1, 2, 3, LEAST, MOST])
start = st.lists(st.tuples(place, place, height), max_size=9)
steps = st.lists(
    st.tuples(st.integers(0, 11), st.booleans(), st.sampled_from("xy+-"), place, place, height), max_size=5
)
ENDS = [LEAST, 0, 1, 2, 3, MOST]
SPANS = [(low, high) for low in ENDS for high in ENDS if low <= high]


@settings(max_examples=2 * settings().max_examples)
@given(start, steps, st.booleans(), st.sampled_from([1, 4096]))
def test_each_affected_box_gets_one_correct_message(first, drawn, largest, rows_of_output) -> None:
    boxes = BoxExtremes(*columns(first, 3), largest=largest)
    boxes._out = boxes._out[:rows_of_output]
    pick = max if largest else min
    rows, states = batch(dict(enumerate(first)), drawn)
    messages = run(boxes, rows, 3)
    boxes._check()
    for a, b in SPANS:
        for c, d in SPANS:
            mine = messages.received_by(0, [(a, b), (c, d)])
            updated = {
                int(messages.seq[m]): None if messages.kind[m] == MessageKind.GONE else int(messages.key[m])
                for m in mine
            }
            assert len(updated) == len(mine), "two messages of one update"
            contents = [
                pick((y for x1, x2, y in state.values() if a <= x1 <= b and c <= x2 <= d), default=None)
                for state in states
            ]
            for k in range(len(rows)):
                assert (k in updated) == (contents[k] != contents[k + 1])
                assert updated.get(k, contents[k + 1]) == contents[k + 1]
            assert boxes.content(a, b, c, d) == contents[-1]
    assert boxes.counters["messages"] == len(messages) and len(boxes) == len(states[-1])
