"""Cells of CSV: what each means, by itself."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.commands.cells import fit, own_types
from tocsin.commands.data import load_data
from tocsin.commands.events import read_events
from tocsin.commands.replay import EventReplay
from tocsin.commands.timeline import TIMES, Timeline, bins
from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.model.schema import Field, Stream, Table, Type

OPEN = Stream("hits")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def written(tmp_path: Path, text: str | bytes) -> Path:
    file = tmp_path / "hits.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def events(file: Path, relation: Stream | Table = OPEN) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    batches = list(read_events(file, relation))
    rows = [row for batch in batches for row in batch.changes.rows.to_dicts()]
    return rows, [tuple(bad) for batch in batches for bad in batch.bad]


def values(column: list[str | None]) -> list[Any]:
    """The value of each cell by itself or among others: own_types, put together."""
    arrays = [array.to_pylist() for array in own_types(pa.array(column, pa.string()))]
    out: list[Any] = []
    for cells in zip(*arrays, strict=True):
        found = [cell for cell in cells if cell is not None]
        assert len(found) <= 1
        out.append(found[0] if found else None)
    return out


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("9007199254740993", 9007199254740993),
        ("-5", -5),
        ("+5", 5),
        ("007", 7),
        (" 8 ", 8),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), 2.0**63),
        ("1" * 400, "1" * 400),
        ("2.5", 2.5),
        ("5.0", 5.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("0x10", "0x10"),
        ("0xFFFFFFFFFFFFFFFF", "0xFFFFFFFFFFFFFFFF"),
        ("1_000", "1_000"),
        ("1,5", "1,5"),
        ("Nan", "Nan"),
        ("true", True),
        ("FALSE", False),
        ("2024-05-01", date(2024, 5, 1)),
        ("2024-5-1", date(2024, 5, 1)),
        ("2024-05-01 12:00", NOON),
        ("2024-05-01T14:00:00+02:00", NOON),
        ("2024-13-01", "2024-13-01"),
        ("2024-05-01 12", "2024-05-01 12"),
        ("x", "x"),
        (" x ", " x "),
        ("", None),
        ("NA", None),
        ("null", None),
    ],
)
def test_what_a_cell_of_an_open_stream_means(cell: str, value: Any) -> None:
    for beside in ([], ["1"], ["2.5", "x"], ["2024-01-01", "true", str(2**64)]):
        found = values([*beside, cell])[-1]
        assert found == value and type(found) is type(value)


CELLS = st.one_of(
    st.sampled_from(["", "NA", "0x10", "true", "1e400", "NaN", "+", "-", ".", "1.5.2", "2024-05-01 ", "T"]),
    st.integers().map(str),
    st.floats().map(str),
    st.dates().map(str),
    st.datetimes().map(str),
    st.text(alphabet="0123456789.+-eEx T:Z", max_size=8),
    st.text(max_size=4),
)


@given(st.lists(CELLS, min_size=1, max_size=8))
def test_property_a_cell_means_the_same_whatever_stands_beside_it(column: list[str]) -> None:
    assert [repr(value) for value in values(column)] == [repr(values([cell])[0]) for cell in column]
    for type_ in Type:
        fitted, wrong = fit(pa.array(column, pa.string()), type_)
        for i, cell in enumerate(column):
            alone, bad = fit(pa.array([cell], pa.string()), type_)
            assert repr(alone.to_pylist()[0]) == repr(fitted.to_pylist()[i])
            assert bool(bad) == (i in wrong)


def test_integers_beside_a_decimal_stay_exact(tmp_path: Path) -> None:
    rows, bad = events(written(tmp_path, "n\n9007199254740993\n2.5\n"))
    assert rows == [{"n": 9007199254740993}, {"n": 2.5}] and not bad
    engine = Engine()
    engine.execute("CREATE STREAM hits")
    engine.subscribe("SELECT * FROM hits WHERE n = 9007199254740992")
    [batch] = read_events(written(tmp_path, "n\n9007199254740993\n2.5\n"), OPEN)
    assert not len(engine.apply("hits", batch.changes))


@pytest.mark.parametrize("type_", [Type.BIGINT, Type.DOUBLE])
def test_hexadecimal_is_bad_in_a_column_of_numbers(tmp_path: Path, type_: Type) -> None:
    stream = Stream("hits", (Field("n", type_),))
    for cells in (["0x10"], ["0x10", "5", "x"], ["0xFFFFFFFFFFFFFFFF", "5"]):
        rows, bad = events(written(tmp_path, "\n".join(["n", *cells])), stream)
        assert bad[0] == (0, f"column n: {cells[0]!r} is not a {type_}")
        assert [row["n"] for row in rows] == [5] * ("5" in cells)


def test_whole_numbers_written_with_a_point_are_exact(tmp_path: Path) -> None:
    stream = Stream("hits", (Field("n", Type.BIGINT),))
    rows, bad = events(written(tmp_path, "n\n9007199254740993.0\n5.0\n5.5\n"), stream)
    assert [row["n"] for row in rows] == [9007199254740993, 5] and [row for row, _ in bad] == [2]


def test_a_cell_of_three_megabytes(tmp_path: Path) -> None:
    long = "x" * 3_000_000
    lines = ["n,s", *(f"{n},a" for n in range(200_000)), f"200000,{long}", "200001", "200002,b"]
    rows, bad = events(written(tmp_path, "\n".join(lines)))
    assert [row["n"] for row in rows] == [*range(200_001), 200_002]
    assert rows[200_000]["s"] == long and bad == [(200_001, "malformed row: 1 cells instead of 2")]
    rows, _ = events(written(tmp_path, f"s\n{long}\nb\n"))  # before any other row
    assert [row["s"] for row in rows] == [long, "b"]


def test_empty_lines(tmp_path: Path) -> None:
    one = "\n\ns\na\n\nb\n\n"
    assert events(written(tmp_path, one)) == ([{"s": "a"}, {}, {"s": "b"}, {}], [])
    stream = Stream("hits", (Field("s", Type.STRING),))
    assert [row["s"] for row in events(written(tmp_path, one), stream)[0]] == ["a", None, "b", None]
    assert [row["s"] for row in events(written(tmp_path, 's\n""\n'), stream)[0]] == [""]
    two = "\ns,n\na,1\n\nb,2\n\n"
    assert events(written(tmp_path, two)) == ([{"s": "a", "n": 1}, {"s": "b", "n": 2}], [])


def test_an_attribute_of_another_kind_is_noted(tmp_path: Path) -> None:
    engine = Engine()
    engine.execute("CREATE STREAM hits")
    engine.subscribe("SELECT * FROM hits WHERE n = '1'")
    replay = EventReplay(engine, written(tmp_path, "n\n1\n2\n"))
    assert sum(len(batch.event) for batch in replay) == 0
    assert replay.warnings() == ["'n' is compared with text, but events have number in it"]


def test_one_bad_cell_does_not_make_a_column_text(tmp_path: Path) -> None:
    rows, _ = events(written(tmp_path, "n\nx\n1\n2\n"))
    assert rows == [{"n": "x"}, {"n": 1}, {"n": 2}]


# -- rows of tables -----------------------------------------------------------------------------------


def test_data_in_csv_is_read_by_the_same_rules(tmp_path: Path) -> None:
    engine = Engine()
    engine.execute("CREATE TABLE t (k BIGINT, x DOUBLE, at TIMESTAMP, s STRING, PRIMARY KEY (k))")
    file = tmp_path / "t.csv"
    file.write_text("k,x,at,s\n9007199254740993,1,2024-05-01T12:00Z,1\n5.0,2.5,NA,NA\n")
    assert load_data(engine, file) == 2
    rows = sorted(engine.rows("t").to_pylist(), key=lambda row: row["k"])
    assert [row["k"] for row in rows] == [5, 9007199254740993]
    assert (rows[0]["at"], rows[0]["s"], rows[1]["s"]) == (None, "NA", "1") and rows[1]["at"] == NOON
    file.write_text("k,x\n7,1\n8,0x10\n")
    with pytest.raises(TocsinError, match=r"t\.csv, row 1: column x: '0x10' is not a DOUBLE"):
        load_data(engine, file)
    assert len(engine.rows("t")) == 2


# -- bins -----------------------------------------------------------------------------------------------


def test_four_bins_over_four_thousand_years() -> None:
    line = Timeline(TIMES)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    ends = [int((datetime(year, 1, 1, tzinfo=UTC) - epoch).total_seconds()) * 1_000_000 for year in (1, 4000)]
    found = bins(line, ends[0], ends[1], 4)
    assert len(found) == 4
    for years in (1, 3, 10, 45, 99, 101, 400, 405, 999, 1001, 5000, 9990):
        for most in (2, 4, 7, 40):
            end = int((datetime(years + 1, 1, 2, tzinfo=UTC) - epoch).total_seconds()) * 1_000_000
            assert most // 6 < len(bins(line, ends[0], end, most)) <= most
