"""`tocsin simulate`: every scheme checked on small settings, counts against enumeration, seeds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tocsin.cli import app
from tocsin.errors import TocsinError, UsageError
from tocsin.lab.simulate.check import expected_content
from tocsin.lab.simulate.command import choose_schemes, run_simulation
from tocsin.lab.simulate.enumerate import count_affected
from tocsin.lab.simulate.networks import NETWORKS, SimulateSetting
from tocsin.lab.simulate.run import PAPER, SCHEMES, Simulation, message_bytes
from tocsin.lab.simulate.topology import draw_topology
from tocsin.lab.simulate.workload import draw_workload
from tocsin.network.base import OverlayNetwork

SMALL = {"subscriptions": 400, "events": 40, "brokers": 25, "rows": 200, "nodes": 300, "seed": 3}
KEYS = (
    "scheme traffic_bytes_per_event hops_per_event server_stress_bytes_per_event hop_latency "
    "description_bytes_per_event server_us_per_event checked"
).split()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("workload", ["w1", "w2"])
def test_every_scheme_is_checked_and_the_same_again(network: str, workload: str) -> None:
    setting = SimulateSetting(workload=workload, network=network, **SMALL)
    first, again = (run_simulation(setting, list(SCHEMES)) for _ in range(2))
    for one, two in zip(first, again, strict=True):
        found, other = one.to_dict(), two.to_dict()
        assert set(KEYS) <= set(found) and found["checked"] is True
        found["server_us_per_event"] = other["server_us_per_event"] = 0
        assert found == other
    by_name = {result.scheme: result for result in first}
    assert by_name["ref-j+"].traffic_bytes_per_event <= by_name["ref-j"].traffic_bytes_per_event
    fewest, merged = by_name["ref-sj-min"], by_name["ref-sj-clu+"]
    assert 0 < fewest.description_bytes_per_event <= merged.description_bytes_per_event


def test_zones_by_messages_of_one_scheme_of_all_or_of_other_rows() -> None:
    base = SimulateSetting(workload="w2", zones="traffic", **SMALL)
    simulation = Simulation(base)
    found = {}
    for training in ("clu+", "all", "other"):
        simulation.use(replace(base, training=training))
        assert simulation.run("ref-sj-clu+").checked
        found[training] = simulation.network.placement.broker.copy()
        (again,) = run_simulation(replace(base, training=training), ["ref-sj-clu+"])
        assert again.traffic_bytes_per_event == simulation.run("ref-sj-clu+").traffic_bytes_per_event
    assert not np.array_equal(found["clu+"], found["other"])


@pytest.mark.parametrize("tree", ["entry", "fixed"])
def test_zones_by_traffic_and_trees(tree: str) -> None:
    setting = SimulateSetting(workload="w2", zones="traffic", tree=tree, **SMALL)
    (result,) = run_simulation(setting, ["ref-sj-clu+"])
    assert result.checked and result.links is not None
    assert result.links.sum() == pytest.approx(result.traffic_bytes_per_event)
    assert 0 < result.server_stress_bytes_per_event <= result.node_stress_bytes_per_event
    assert result.ip_bytes_per_event >= result.traffic_bytes_per_event


@pytest.mark.parametrize("network", ["can", "cbn"])
def test_payload_caches_save_traffic(network: str) -> None:
    sizes = {**SMALL, "rows": 40, "events": 120}
    found = {}
    for plus, plain in ((None, 0.0), (0, 0.0), (400, 0.0), (400, 0.5)):
        setting = SimulateSetting(
            workload="w2", network=network, tree="fixed", payload=1000, plus=plus, plain=plain, **sizes
        )
        (result,) = run_simulation(setting, ["ref-j+"])
        assert result.checked
        found[plus, plain] = result
    traffic = {key: result.traffic_bytes_per_event for key, result in found.items()}
    assert traffic[None, 0.0] > traffic[400, 0.5] > traffic[400, 0.0]
    assert found[0, 0.0].fetches_per_event > found[400, 0.0].fetches_per_event
    assert found[0, 0.0].hop_latency > found[400, 0.0].hop_latency


def test_counts_of_the_affected_equal_brute_force() -> None:
    work = draw_workload("w1", 300, 25, seed=5, rows=50, s_rows=200)
    far = np.random.default_rng(1).integers(0, 9, 300)
    found = count_affected(work, far)
    a, c = work.points[:, 0], work.points[:, 1]
    for i in range(25):
        values = work.s_value[work.s_key == work.event_key[i]]
        selected = (a[:, 0] <= work.event_value[i]) & (work.event_value[i] <= a[:, 1])
        rows = ((c[:, :1] <= values) & (values <= c[:, 1:])).sum(axis=1) * selected
        expected = (rows > 0).sum(), rows.sum(), far[rows > 0].sum(), (rows * far).sum()
        assert tuple(part[i] for part in found) == expected


def test_a_network_that_misses_a_gateway_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(SimulateSetting(workload="w1", **{**SMALL, "subscriptions": 20}))
    deliver = OverlayNetwork.deliver

    def forget(self: OverlayNetwork, *args: object) -> object:
        delivery = deliver(self, *args)  # type: ignore[arg-type]
        delivery.reached[:] = 0
        return delivery

    assert simulation.run("rel-sel").checked
    monkeypatch.setattr(OverlayNetwork, "deliver", forget)
    with pytest.raises(TocsinError, match="is wrong"):
        simulation.run("rel-sel")


def test_sizes_of_messages() -> None:
    simulation = Simulation(SimulateSetting(workload="w1", **SMALL))
    for name, row in (("rel-sel", 16 + 16 + 100), ("ref-j", 16 + 2 * (16 + 100))):
        scheme = simulation._prepared(SCHEMES[name])
        for messages in simulation._batches(scheme, simulation.run(name), lambda _: None):
            sizes, description = message_bytes(messages, name, 100)
            assert np.all(sizes == row) and not description.any()
            break


def test_contents_by_brute_force() -> None:
    work = draw_workload("w2", 50, 5, seed=1, rows=100, s_rows=300)
    rows = work.all_rows()
    for slot in range(5):
        (a, b), (c, d) = work.points[slot].tolist()
        pairs = {
            (r, s)
            for r in range(10, 105)
            for s in range(len(work.s_key))
            if rows[0][r] == work.s_key[s] and a <= rows[1][r] <= b and c <= work.s_value[s] <= d
        }
        assert set(expected_content(work, slot, rows, (10, 105))) == pairs


def test_the_topology_is_connected_and_has_hubs() -> None:
    topology = draw_topology(20_000, 50, seed=1)
    assert topology.distance.min() == 0 and 3 < topology.distance.mean() < 7
    assert 50_000 < topology.links < 70_000
    assert np.array_equal(topology.distance, topology.distance.T)


def test_the_command(tmp_path: Path) -> None:
    small = [f"--{name}={value}" for name, value in SMALL.items()]
    picture = tmp_path / "overlay.png"
    run = CliRunner().invoke(
        app, ["simulate", "--json", "--scheme=ref-sj-clu+", f"--picture={picture}", *small]
    )
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert found["workload"] == "w1" and found["network"] == "can" and found["events"] == 40
    assert [result["checked"] for result in found["results"]] == [True]
    assert picture.stat().st_size > 10_000
    run = CliRunner().invoke(app, ["simulate", "--scheme=ref-sj-clu+,enum-sj", *small])
    assert run.exit_code == 0 and "contents of a sample are exact" in run.stdout
    assert list(found)[:4] == ["workload", "subscriptions", "events", "network"]
    assert list(found["results"][0])[:7] == KEYS[:7] and found["results"][0]["checked"] is True
    wrong = "scheme=ref network=lan zones=luck place=x workload=w9 training=no tree=oak"
    for bad in wrong.split():
        run = CliRunner().invoke(app, ["simulate", *small, f"--{bad}"])
        name, value = bad.split("=")
        assert run.exit_code == 2 and repr(value) in run.stderr and "hint" in run.stderr, name
    for bad in ("--brokers=400", "--plain=2", "--plus=-1", "--subscriptions=0", "--plain=0.5"):
        assert CliRunner().invoke(app, ["simulate", *small, bad]).exit_code == 2
    assert CliRunner().invoke(app, ["simulate", *small, "--plus=4", "--tree=entry"]).exit_code == 2
    assert choose_schemes("all") == PAPER and len(PAPER) == 9
    with pytest.raises(UsageError):
        choose_schemes(" , ")
