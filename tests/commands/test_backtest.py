"""`tocsin backtest`: when a subscription would have fired; and the timeline it is counted on."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tocsin.cli import app
from tocsin.commands import timeline
from tocsin.commands.backtest import backtest
from tocsin.commands.timeline import NUMBERS, TIMES, Timeline, bins
from tocsin.errors import UsageError

SLOW = "SELECT * FROM hits WHERE ms > 5"
HITS = "CREATE STREAM hits (ms BIGINT, at TIMESTAMP)"
START = datetime(2013, 1, 1, tzinfo=UTC)


def run(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def rows():
    """One event an hour for four days; slow ones: 3 on the first day, 1 on the second, none, 2."""
    slow = {0, 5, 6, 30, 80, 90}
    return [{"ms": 9 if n in slow else 1, "at": START + timedelta(hours=n)} for n in range(96)]


@pytest.fixture(params=[".parquet", ".csv", ".jsonl"])
def hits(request, tmp_path, rows):
    file = tmp_path / f"hits{request.param}"
    if file.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), file)
    elif file.suffix == ".csv":
        csv.write_csv(pa.Table.from_pylist(rows), file)
    else:
        file.write_text("\n".join(json.dumps({**row, "at": row["at"].isoformat()}) for row in rows))
    return file


def test_a_subscription_that_never_fires(tmp_path):
    file = tmp_path / "two.jsonl"
    file.write_text('{"ms": 1}\n{"ms": 2}\n')
    result = run("backtest", "--subscription", "SELECT * FROM two WHERE ms > 900", "--events", file)
    assert result.exit_code == 0 and "0" in result.stdout, result.output


def test_the_help_teaches_by_example():
    assert "tocsin backtest 'SELECT" in run("--help").stdout
    assert "tocsin backtest 'SELECT" in run("backtest", "--help").stdout


def test_a_histogram_over_time(tmp_path, hits):
    (tmp_path / "schema.sql").write_text(HITS)
    options = ("--subscription", SLOW, "--events", hits, "--schema", tmp_path / "schema.sql", "--bins", 5)
    result = run("backtest", *options)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "96 events of hits, from 2013-01-01 to 2013-01-04 23:00:00 (time is at)",
        "",
        "subscription 1: SELECT * FROM hits WHERE ms > 5",
        "  matches: 6 (6.25% of the events)",
        "  first: 2013-01-01; last: 2013-01-04 18:00:00",
        "  longest quiet gap: 2 days, 2:00:00, from 2013-01-02 06:00:00 to 2013-01-04 08:00:00",
        "  busiest: 2013-01-01, 3 matches",
        "",
        f"2013-01-01  {'█' * 40} 3",
        f"2013-01-02  {'█' * 13}▍ 1",
        "2013-01-03  0",
        f"2013-01-04  {'█' * 26}▋ 2",
        "",
    ]
    result = json.loads(run("backtest", *options, "--json").stdout)
    assert result["ok"]
    assert result["time"] == "at"
    (fired,) = result["subscriptions"]
    assert fired["matches"] == 6
    assert fired["share"] == 6 / 96
    assert fired["histogram"][0] == {"start": "2013-01-01", "matches": 3}
    assert fired["busiest"] == fired["histogram"][0]
    assert fired["quiet"]["start"] == "2013-01-02 06:00:00"


def test_the_times_of_an_open_stream(hits):
    """Columns of Parquet and CSV have a type; text in JSON is a time if --time names it."""
    alone = backtest(SLOW, hits)
    assert alone.time == (None if hits.suffix == ".jsonl" else "at")
    assert alone.subscriptions[0].matches == 6
    chosen = backtest(SLOW, hits, time="at", bins=4)
    assert [bin.total for bin in chosen.subscriptions[0].histogram] == [3, 1, 0, 2]
    assert not chosen.untimed


def test_over_event_numbers_if_there_is_no_time(tmp_path):
    (tmp_path / "hits.jsonl").write_text("".join(f'{{"ms": {n}}}\n' for n in range(50)))
    result = run("backtest", "--subscription", SLOW, "--events", tmp_path / "hits.jsonl", "--bins", 5)
    assert "by event number; name a time column with --time" in result.stdout
    assert "longest quiet gap: 6 events, from event 0 to event 6" in result.stdout
    result = backtest(SLOW, tmp_path / "hits.jsonl", bins=5).subscriptions[0]
    assert [(bin.label, bin.total) for bin in result.histogram] == [
        ("0", 4), ("10", 10), ("20", 10), ("30", 10), ("40", 10),
    ]  # fmt: skip
    assert (result.first, result.last) == ("event 6", "event 49")


def test_several_subscriptions_from_a_file(tmp_path, rows):
    (tmp_path / "a.sql").write_text(f"{HITS}; {SLOW};\n-- id: 9\nSELECT * FROM hits WHERE ms > 100")
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "hits.parquet")
    options = ("--subscriptions", tmp_path / "a.sql", "--events", tmp_path / "hits.parquet")
    result = json.loads(run("backtest", *options, "--json").stdout)
    assert [(s["subscription"], s["matches"]) for s in result["subscriptions"]] == [(1, 6), (9, 0)]
    never = result["subscriptions"][1]
    assert (never["first"], never["last"], never["busiest"]) == (None, None, None)
    assert never["quiet"] == {
        "start": "2013-01-01",
        "end": "2013-01-04 23:00:00",
        "length": "3 days, 23:00:00",
    }
    assert run("backtest", *options).exit_code == 0


def test_a_date_column_and_rows_without_a_time(tmp_path):
    schema = "CREATE STREAM hits (ms BIGINT, day DATE)"
    table = pa.table({"ms": [9, 9, 9], "day": [date(2013, 1, 1), None, date(2013, 1, 3)]})
    parquet.write_table(table, tmp_path / "hits.parquet")
    result = backtest(SLOW, tmp_path / "hits.parquet", schema=schema)
    assert result.time == "day"
    assert result.untimed == 1
    assert result.subscriptions[0].matches == 3
    assert sum(bin.total for bin in result.subscriptions[0].histogram) == 2
    assert "matches without a time: 1; they are in no bin" in list(result.lines())


def test_every_change_of_a_table_that_changes_the_answer_fires_once(tmp_path):
    schema = "CREATE TABLE stocks (symbol STRING PRIMARY KEY, per DOUBLE)"
    changes = [("insert", 9), ("update", 8), ("update", 1), ("update", 2), ("delete", None)]
    lines = [json.dumps({"symbol": "A", "per": per, "_op": op}) for op, per in changes]
    (tmp_path / "stocks.jsonl").write_text("\n".join(lines))
    result = backtest("SELECT * FROM stocks WHERE per > 5", tmp_path / "stocks.jsonl", schema=schema)
    assert result.subscriptions[0].matches == 3, "comes, changes, goes"
    assert (
        backtest("SELECT COUNT(*) FROM stocks", tmp_path / "stocks.jsonl", schema=schema)
        .subscriptions[0]
        .matches
        == 2
    ), "the first answer is not an event's"


def test_bad_rows_are_a_problem_and_the_rest_is_counted(tmp_path):
    (tmp_path / "hits.csv").write_text(
        "ms,at\n9,2013-01-01 00:00\nx,2013-01-01 00:00\n9,yesterday\n9,2013-01-02\n"
    )
    (tmp_path / "s.sql").write_text(HITS)
    result = run(
        "backtest", "--subscription", SLOW, "--events", tmp_path / "hits.csv", "--schema", tmp_path / "s.sql"
    )
    assert result.exit_code == 1
    assert "matches: 2 (100.00% of the events)" in result.stdout
    assert "column at: 'yesterday' is not a TIMESTAMP  (first: event 2)" in result.stdout


@pytest.mark.parametrize("name", ["hits.jsonl", "hits.csv"])
def test_no_events(tmp_path, name):
    (tmp_path / name).write_text("")
    result = run("backtest", "--subscription", SLOW, "--events", tmp_path / name)
    assert result.exit_code == 0
    assert "0 events of hits" in result.stdout


def test_wrong_use(tmp_path, rows):
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "hits.parquet")
    (tmp_path / "s.sql").write_text("CREATE STREAM hits (ms BIGINT, at TIMESTAMP, til TIMESTAMP)")
    events = ("--events", tmp_path / "hits.parquet", "--schema", tmp_path / "s.sql")
    one = (*events, "--subscription", SLOW)
    for options, code, message in [
        (events, 2, "no subscription is given"),
        ((*one, "--subscriptions", tmp_path / "s.sql"), 2, "one of the two"),
        ((*one, "--time", "att"), 2, "did you mean 'at'?"),
        ((*one, "--time", "ms"), 2, "column ms of hits is a BIGINT, not a TIMESTAMP or DATE"),
        ((*one, "--bins", 0), 2, "--bins"),
        ((*events, "--subscription", "SELECT * FROM hits WHERE mss > 5"), 1, "did you mean 'ms'?"),
        (("--events", tmp_path / "none.csv", "--subscription", SLOW), 2, "does not exist"),
        (("--events", tmp_path / "s.sql", "--subscription", SLOW), 2, "has an unknown format"),
    ]:
        result = run("backtest", *options)
        assert result.exit_code == code, result.output
        assert message in " ".join(result.stderr.split()), result.stderr
    assert "several time columns: at, til; choose one with --time" in run("backtest", *one).stdout
    with pytest.raises(UsageError, match="1 to 200 bins"):
        backtest(SLOW, tmp_path / "hits.parquet", bins=0)


def test_too_many_to_look_at(tmp_path):
    (tmp_path / "hits.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="too many"):
        backtest([SLOW] * 1001, tmp_path / "hits.jsonl")


# -- the timeline ------------------------------------------------------------------------------------


@settings(max_examples=max(100, settings().max_examples))
@given(
    st.integers(0, 2**32),
    st.integers(0, 600),
    st.integers(0, 16),
    st.integers(1, 8),
    st.sampled_from([NUMBERS, TIMES]),
)
def test_bins_and_gaps_are_exact_however_much_is_put_together(seed, count, digits, most, axis):
    rng = np.random.default_rng(seed)
    moments = rng.integers(-(10**digits), 10**digits + 1, count)
    held, timeline.MOST_UNITS = (
        timeline.MOST_UNITS,
        60 * most + 1,
    )  # units coarsen, and stay below the width of bins
    try:
        line = Timeline(axis)
        for part in np.array_split(moments, 5):
            line.add(part)
            line._check()
    finally:
        timeline.MOST_UNITS = held
    assert line.count == count
    if not count:
        return
    moments.sort()
    assert (line.first, line.last) == (moments[0], moments[-1])
    start, end = int(moments[0]) - 5, int(moments[-1]) + 5
    found = bins(line, start, end, most)
    assert len(found) <= most
    edges = [bin.start for bin in found] + [end + 1]
    assert edges[0] <= start
    for (low, high), bin in zip(pairwise(edges), found, strict=True):
        assert bin.total == np.count_nonzero((low <= moments) & (moments < high))
    longest = max(b - a for a, b in pairwise([start, *moments.tolist(), end]))
    low, high = line.longest_gap(start, end)
    assert high - low == longest or high - low < longest <= axis.units[line._level]


def test_a_long_line_stays_small_and_exact():
    rng = np.random.default_rng(0)
    moments = rng.integers(0, 400 * 86_400_000_000, 200_000)
    moments = moments[(moments < 10**13) | (moments > 2 * 10**13)]  # a gap of 115 days
    line = Timeline(TIMES)
    for part in np.array_split(moments, 20):
        line.add(part)
    line._check()
    assert len(line.starts()[0]) <= timeline.MOST_UNITS
    assert line.longest_gap(0, 400 * 86_400_000_000) == (
        moments[moments < 10**13].max(),
        moments[moments > 2 * 10**13].min(),
    )
    found = bins(line, 0, 400 * 86_400_000_000 - 1, 20)
    assert [bin.label for bin in found[:3]] == ["1970-01", "1970-02", "1970-03"]
    february = (moments >= 31 * 86_400_000_000) & (moments < 59 * 86_400_000_000)
    assert found[1].total == february.sum()


@pytest.mark.parametrize(
    ("length", "label"),
    [
        (timedelta(microseconds=15), "2013-01-31 23:59:59.000000"),
        (timedelta(seconds=15), "2013-01-31 23:59:59"),
        (timedelta(minutes=15), "2013-01-31 23:59"),
        (timedelta(hours=15), "2013-01-31 23:00"),
        (timedelta(days=15), "2013-01-31"),
        (timedelta(days=100), "2013-01-28"),
        (timedelta(days=400), "2013-01"),
        (timedelta(days=6000), "2013"),
        (timedelta(days=300_000), "2000"),
    ],
)
def test_labels_are_as_fine_as_the_bins(length, label):
    start = (datetime(2013, 1, 31, 23, 59, 59, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )
    line = Timeline(TIMES)
    line.add(np.array([start]))
    found = bins(line, start, start + length // timedelta(microseconds=1), 20)
    assert found[0].label == label
    assert found[0].total == 1


LOGINS = "CREATE STREAM logins (user STRING, ok BOOLEAN, at TIMESTAMP)"
SEQUENCE = """SELECT b.user FROM logins a FOLLOWED BY logins b ON a.user = b.user WITHIN '5 minutes'
    WHERE NOT a.ok AND b.ok"""
COUNTED = "SELECT user FROM logins GROUP BY user HAVING COUNT(*) >= 2 WITH (window = '5 minutes')"
SILENT = "SELECT DISTINCT user FROM logins WITH (window = '5 minutes', absent = 'forever')"


def logins_at(tmp_path, *minutes):
    """Attempts of one user, the second of each pair with success."""
    file = tmp_path / "logins.jsonl"
    rows = [
        {"user": "eve", "ok": n % 2 == 1, "at": None if m is None else str(START + timedelta(minutes=m))}
        for n, m in enumerate(minutes)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


@pytest.mark.parametrize(
    ("sql", "fired"),
    [
        (SEQUENCE, [3]),  # 13 minutes after 10, but 9 after 0 is too late
        (COUNTED, [3, 4]),  # 3 enters, 4 leaves with the clock and is alone
        (SILENT, [1, 2, 4]),  # silent when the event that moves the clock comes, but for 2, which is back
    ],
)
def test_events_come_at_their_times(tmp_path, sql, fired):
    file = logins_at(tmp_path, 0, 9, 20, 23, 59)
    found = backtest(sql, file, schema=LOGINS, time="at", bins=60)
    (history,) = found.subscriptions
    minute = {0: 0, 1: 9, 2: 20, 3: 23, 4: 59}
    shown = [bin.label[11:16] for bin in history.histogram if bin.total]
    assert history.matches == len(fired)
    assert shown == [f"00:{minute[n]:02}" for n in fired]


def test_time_does_not_go_back_and_events_without_one_come_at_once(tmp_path):
    file = logins_at(tmp_path, None, None, 10, 3, 30, 40, 50, None, None, None)
    found = backtest(SEQUENCE, file, schema=LOGINS)
    assert found.subscriptions[0].matches == 4  # all but the one of 30 and 40
