"""Versions on disk: another process maps them and gives the same matches; segments are shared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tocsin.errors import TocsinError
from tocsin.match.index import Auto, MergePolicy
from tocsin.match.segments.files import drop_unused, last_version
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Rows
from tocsin.model.schema import Stream
from tocsin.predicate.columnar import flat_predicates

STREAM = Stream("events", ())


def predicates(count: int, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        row: list[dict[str, object]] = []
        for a in rng.choice(30, rng.integers(1, 4), replace=False).tolist():
            op = rng.choice(["=", "<=", ">=", "between", "contains", "prefix"])
            text, low = chr(97 + int(rng.integers(0, 5))), float(rng.integers(0, 10))
            pattern = op in ("contains", "prefix")
            row.append(
                {
                    "attribute": f"{'t' if pattern else 'a'}{a}",
                    "op": str(op),
                    "number": None if pattern else low,
                    "high": low + 3 if op == "between" else None,
                    "text": text if pattern else None,
                }
            )
        rows.append(row)
    return pa.table({"id": range(count), "predicates": rows})


def events(count: int, seed: int = 2) -> Rows:
    rng = np.random.default_rng(seed)
    rows = [
        {f"a{a}": float(rng.integers(0, 13)) for a in range(30)}
        | {f"t{a}": "".join(rng.choice(list("abcdef"), 3)) for a in range(30)}
        for _ in range(count)
    ]
    return ChangeBatch.from_dicts(STREAM, rows)[0].rows


def filled(count: int, **options: object) -> Auto:
    index = Auto(**options)  # type: ignore[arg-type]
    index.add(np.arange(count), flat_predicates(STREAM, predicates(count))[0])
    return index


def test_an_opened_version_matches_the_same(tmp_path: Path) -> None:
    index = filled(2000)
    index.remove(np.arange(0, 2000, 7))
    wanted = np.sort(index.match(events(300)))
    assert len(wanted) > 1000
    assert index.save(tmp_path) == 1
    opened = Auto.open(tmp_path)
    opened._check()
    assert np.array_equal(np.sort(opened.match(events(300))), wanted)
    assert opened.stats()["subscriptions"] == index.stats()["subscriptions"]
    opened.add(np.array([0, 7]), flat_predicates(STREAM, predicates(2, seed=9))[0])  # it goes on from there
    opened.remove(np.array([1]))
    opened.match(events(10))
    opened._check()


def test_versions_share_segments_and_old_ones_can_go(tmp_path: Path) -> None:
    index = filled(500)
    index.save(tmp_path)
    index.remove(np.array([3]))
    assert index.save(tmp_path) == 2
    assert len(list((tmp_path / "segments").iterdir())) == 1
    index.add(np.array([3, 9000]), flat_predicates(STREAM, predicates(2, seed=5))[0])
    index.save(tmp_path)
    assert drop_unused(tmp_path, keep=1) in (0, 1)
    assert last_version(tmp_path) == 3
    assert Auto.open(tmp_path).stats()["subscriptions"] == 501
    with pytest.raises(TocsinError, match=r"version 1 .* cannot be read"):
        Auto.open(tmp_path, 1)
    with pytest.raises(TocsinError, match="there is no version"):
        Auto.open(tmp_path / "nowhere")


def test_another_process_maps_a_version(tmp_path: Path) -> None:
    index = filled(1000)
    index.save(tmp_path)
    script = (
        "import sys, numpy as np\n"
        "from tocsin.match.index import Auto\n"
        "from tests.match.test_files import events\n"
        "index = Auto.open(sys.argv[1])\n"
        "print(np.sort(index.match(events(50))).sum())\n"
        "maps = open('/proc/self/maps').read() if sys.platform == 'linux' else 'checks.slot.npy'\n"
        "assert 'checks.slot.npy' in maps\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == int(np.sort(index.match(events(50))).sum())


def test_large_segments_can_live_in_files_alone(tmp_path: Path) -> None:
    plain, mapped = filled(3000), filled(3000, policy=MergePolicy(folder=tmp_path, background_size=100))
    assert np.array_equal(np.sort(plain.match(events(100))), np.sort(mapped.match(events(100))))
    mapped.wait()
    assert any((tmp_path / "segments").iterdir())
    mapped.remove(np.arange(2000))
    plain.remove(np.arange(2000))
    mapped.wait()
    assert np.array_equal(np.sort(plain.match(events(100))), np.sort(mapped.match(events(100))))
    mapped._check()
