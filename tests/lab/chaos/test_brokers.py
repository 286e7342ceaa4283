"""Brokers in network namespaces, killed, and their links cut."""

from __future__ import annotations

import os
import subprocess

import pytest

from tocsin.errors import UsageError
from tocsin.lab.chaos.brokers import BrokerChaosResult
from tocsin.lab.chaos.command import run_broker_chaos
from tocsin.lab.chaos.namespaces import Namespaces, reason_against

REASON = reason_against()
SECONDS = float(os.environ.get("TOCSIN_TEST_NETWORK", "0"))


@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_cables_are_cut_and_mended() -> None:
    with Namespaces(2) as net:
        ours, theirs = net.connect(1, 2)
        words = net.command(1, "ip", "-o", "link", "show", "up")

        def up() -> int:
            return subprocess.run(words, capture_output=True, text=True, check=True).stdout.count(",LOWER_UP")

        assert ours != theirs and up() == 2  # the cable and the loopback
        net.cut(net.cables[0])
        assert up() == 1
        net.mend(net.cables[0])
        assert up() == 2


def test_results() -> None:
    result = BrokerChaosResult(8, 0, compared=5, settled=1.5)
    assert result.ok and "1.5 s after the last fault" in result.lines()[1]
    result.wrong = 1
    assert not result.ok and not result.to_dict()["ok"]
    with pytest.raises(UsageError, match="at least 3"):
        run_broker_chaos(2, 0, 10)


@pytest.mark.skipif(bool(REASON) or not SECONDS, reason=REASON or "make test-network runs it")
@pytest.mark.parametrize("repositories", [0, 4])
def test_contents_are_exact_after_faults(repositories) -> None:
    result = run_broker_chaos(8, seed=repositories, seconds=SECONDS, repositories=repositories)
    assert result.ok and result.settled < 5, result.lines()
