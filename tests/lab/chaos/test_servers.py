"""A server that is killed: a short form of `tocsin chaos --server`."""

from __future__ import annotations

from tocsin.lab.chaos.servers import ServerChaos


def test_a_killed_server_loses_and_doubles_nothing(tmp_path):
    said = []
    result = ServerChaos(3, tmp_path, said.append).run(2)
    assert result.ok, result.lines()
    assert result.runs == 2 and result.requests and result.deltas and result.webhooks
