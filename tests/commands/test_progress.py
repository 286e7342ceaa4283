"""Watching a query that is made up."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from tocsin.commands.progress import BatchProgress, Display, Interrupted, percentile, stop_quietly, watch
from tocsin.errors import TocsinError


class Query:
    """Ends a batch at every look, three in all; then fails if `failing`."""

    def __init__(self, failing: bool = False) -> None:
        self.recentProgress: list[dict[str, Any]] = []
        self.failing, self.stopped = failing, False

    def awaitTermination(self, seconds: float) -> bool:
        number = len(self.recentProgress)
        if number == 3 and self.failing:
            raise RuntimeError(
                "[FAILED] it\n  File x\ntocsin.errors.TocsinError: no seq\n\tat java.lang.Thread"
            )
        if number < 3:
            sources = [
                {"description": "FileStreamSource[file:/x/changes]", "numInputRows": 10},
                {"description": "FileStreamSource[file:/x/state/subscriptions/log]", "numInputRows": 1},
            ]
            times = {"addBatch": 900, "triggerExecution": 1500}
            self.recentProgress.append({"batchId": number, "durationMs": times, "sources": sources})
        return number == 3

    def stop(self) -> None:
        self.stopped = True


def test_every_batch_is_seen_once_and_the_log_of_versions_is_not_counted():
    seen = [batch for fresh in watch(Query(), Interrupted(), every=0) for batch in fresh]
    assert seen == [BatchProgress(n, 10, 1.5, stages={"addBatch": 0.9}) for n in range(3)]


def test_a_failure_is_reported_in_two_lines():
    with pytest.raises(TocsinError) as caught:
        list(watch(Query(failing=True), Interrupted(), every=0))
    assert str(caught.value).splitlines() == [
        "the pipeline failed: [FAILED] it",
        "tocsin.errors.TocsinError: no seq",
    ]


def test_a_first_interrupt_ends_the_watching_and_a_second_is_raised():
    query = Query()
    with Interrupted() as interrupted:
        for _ in watch(query, interrupted, every=0):
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupted
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    stop_quietly(query)
    assert query.stopped
    assert len(query.recentProgress) == 1


def test_without_a_terminal_lines_are_plain_and_few(capsys, monkeypatch):
    with Display("replay", 100) as display:
        display.say("starting")
        display.show(10)
        monkeypatch.setattr("tocsin.commands.progress.PLAIN_EVERY", 0.0)
        display.show(20, "5 deltas")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "starting"
    assert len(lines) == 2
    assert lines[1].startswith("replay: 20 of 100 changes, ")
    assert lines[1].endswith(" changes/s, 5 deltas")


def test_on_a_terminal_there_is_a_bar(capsys, monkeypatch):
    monkeypatch.setattr("tocsin.commands.progress.BAR_AFTER", 0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    for total in (100, None):
        with Display("replay", total) as display:
            display.say("starting")
            display.show(20, "5 deltas")
    assert "5 deltas" in capsys.readouterr().err


def test_a_bar_appears_only_if_the_work_takes_longer(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with Display("replay", 100) as display:
        display.show(20, "5 deltas")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("tocsin.commands.progress.BAR_AFTER", 0.01)
    with Display("replay", 100) as display:
        display.show(20, "5 deltas")
        time.sleep(0.5)
    assert "5 deltas" in capsys.readouterr().err


def test_percentiles():
    values = [float(n) for n in range(1, 101)]
    assert (percentile(values, 50), percentile(values, 99), percentile(values, 100)) == (50.0, 99.0, 100.0)
    assert percentile([3.0], 1) == 3.0
