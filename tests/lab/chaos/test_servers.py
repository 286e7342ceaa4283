"""A server that is killed: a short form of `tocsin chaos --server`."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import pytest

from tocsin.errors import UsageError
from tocsin.lab.chaos.server_clients import Receiver
from tocsin.lab.chaos.server_parts import ServerChaosParts
from tocsin.lab.chaos.servers import ServerChaos, ServerChaosResult


def test_a_killed_server_loses_and_doubles_nothing(tmp_path):
    said = []
    result = ServerChaos(3, tmp_path, said.append).run(2)
    assert result.ok, result.lines()
    assert result.runs == 2 and result.requests and result.deltas and result.webhooks


def test_a_message_that_was_cut_was_not_received():
    receiver, body = Receiver(), b'{"data": {"deltas": [{"subscription": 1, "row": {"worker": 0, "n": 7}}]}}'
    port = urlsplit(receiver.url).port
    answers = []
    for some in (body[:10], body, body):
        with socket.create_connection(("127.0.0.1", port)) as sender:
            head = f"POST /hooks HTTP/1.1\r\nwebhook-id: a\r\ncontent-length: {len(body)}\r\n\r\n"
            sender.sendall(head.encode() + some)
            sender.shutdown(socket.SHUT_WR)
            answers.append(sender.recv(100)[:12])
    receiver.close()
    assert answers == [b"", b"HTTP/1.1 200", b"HTTP/1.1 200"]
    assert receiver.received() == {(1, 0, 7): 1}
    assert (receiver.repeated, receiver.changed) == (1, 0)


class TestParts:
    def test_what_is_done_is_not_done_again(self, tmp_path, monkeypatch):
        ran = run_by(monkeypatch, {})
        assert ServerChaosParts(5, 7, tmp_path, str, part=2).run().runs == 5
        assert ran == [(7, 0, 2), (9, 2, 2), (11, 4, 1)]
        (tmp_path / "part-2.json").unlink()
        again = ServerChaosParts(5, 7, tmp_path, str, part=2).run()
        assert ran[3:] == [(9, 2, 2)]
        assert (again.runs, again.asked, again.kills) == (5, 5, {"at random": 5})

    def test_an_interruption_reports_what_was_done(self, tmp_path, monkeypatch):
        said = []
        run_by(monkeypatch, {2: [KeyboardInterrupt()]})
        result = ServerChaosParts(5, 7, tmp_path, said.append, part=2).run()
        assert (result.runs, result.ok) == (2, False)
        assert said[-1] == f"interrupted; it goes on with --seed 7 --runs 5 --dir {tmp_path}"

    def test_a_fault_of_the_machine_is_repeated_and_reported(self, tmp_path, monkeypatch):
        run_by(monkeypatch, {2: [OSError("no sockets")]})
        result = ServerChaosParts(4, 7, tmp_path, str, part=2).run()
        assert (result.runs, result.ok) == (4, True)
        assert result.faults == ["runs from 2: OSError: no sockets"]
        assert json.dumps(result.to_dict())

    def test_a_folder_is_of_one_seed(self, tmp_path, monkeypatch):
        run_by(monkeypatch, {})
        ServerChaosParts(1, 7, tmp_path, str).run()
        with pytest.raises(UsageError, match="runs of --seed 7"):
            ServerChaosParts(1, 8, tmp_path, str).run()


def run_by(monkeypatch, errors):
    """Let parts succeed at once, but for these errors by their first run; returns what was run."""
    ran = []

    class Chaos:
        def __init__(self, seed, folder, say, *, first):
            self.seed, self.first = seed, first

        def run(self, runs):
            if errors.get(self.first):
                raise errors[self.first].pop()
            ran.append((self.seed, self.first, runs))
            result = ServerChaosResult(asked=runs, runs=runs)
            result.kills["at random"] += runs
            return result

    monkeypatch.setattr("tocsin.lab.chaos.server_parts.ServerChaos", Chaos)
    return ran
