"""Texts by number: the same as a dict."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tocsin.model.buffers import Texts
from tocsin.model.texts import TextNumbers

batches = st.lists(st.lists(st.text(max_size=6), max_size=40), max_size=8)


@given(batches, st.lists(st.text(max_size=6), max_size=20))
def test_numbers_are_those_of_a_dict(given: list[list[str]], wanted: list[str]) -> None:
    numbers, known = TextNumbers(), dict[str, int]()
    for turn, texts in enumerate(given):
        array = pa.array(["odd", *texts], pa.string() if turn % 2 else pa.large_string()).slice(1)
        own = [known.setdefault(text, len(known)) for text in texts]
        assert numbers.add(Texts(array)).tolist() == own
    assert numbers.find(wanted).tolist() == [known.get(text, -1) for text in wanted]
    assert list(numbers) == list(known) and len(numbers) == len(known)
    numbers._check()


def test_many() -> None:
    texts = [f"attribute {i}" for i in range(50_000)]
    numbers = TextNumbers(texts[:10])
    assert numbers.add(texts).tolist() == list(range(50_000))
    numbers._check()
