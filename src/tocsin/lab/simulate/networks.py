"""The network of a simulation, made from its setting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tocsin.errors import UsageError
from tocsin.lab.simulate.workload import Workload
from tocsin.model.columns import Index
from tocsin.model.message import Regions
from tocsin.network.base import Network, OverlayNetwork
from tocsin.network.can import Can, CanFixed
from tocsin.network.cbn import Cbn
from tocsin.network.cnplus import PayloadNetwork
from tocsin.network.unicast import Unicast, UnicastToGateways

__all__ = ["NETWORKS", "PLACES", "TRAININGS", "TREES", "ZONES", "SimulateSetting", "make_network"]

_PLACED: dict[str, type[OverlayNetwork]] = {made.name: made for made in (Cbn, Unicast, UnicastToGateways)}
NETWORKS, ZONES, TREES = ("can", *_PLACED), ("load", "traffic"), ("entry", "fixed")
PLACES = ("interest", "random")
TRAININGS = ("clu+", "all", "other")


@dataclass(frozen=True)
class SimulateSetting:
    """What is simulated."""

    workload: str = "w1"
    subscriptions: int = 100_000
    events: int = 1000
    network: str = "can"
    zones: str = "load"
    seed: int = 0
    tree: str = "entry"
    brokers: int = 1000
    payload: int = 100
    rows: int = 16_000
    nodes: int = 20_000
    place: str = "interest"
    plus: int | None = None
    plain: float = 0.0
    training: str = "clu+"
    refers: bool = True

    def __post_init__(self) -> None:
        lists = {"network": NETWORKS, "zones": ZONES, "tree": TREES, "place": PLACES, "training": TRAININGS}
        for name, known in lists.items():
            if getattr(self, name) not in known:
                raise UsageError(
                    f"--{name} {getattr(self, name)!r} is not known", hint=f"one of {', '.join(known)}"
                )
        is_fixed = self.network == "cbn" or (self.network, self.tree) == ("can", "fixed")
        if self.plus is not None and not is_fixed:
            raise UsageError("payloads are cached over a fixed tree", hint="--tree fixed, or --network cbn")
        if self.plain and self.plus is None:
            raise UsageError("--plain is a share of the brokers of CN+", hint="--plus 400, or leave it out")
        if self.brokers > self.nodes:
            raise UsageError(
                f"{self.brokers:,} brokers in a topology of {self.nodes:,} nodes",
                hint=f"--nodes {self.brokers} or more",
            )


def make_network(setting: SimulateSetting, work: Workload, past: Regions | None) -> Network:
    """With all subscriptions; `past` are regions of earlier messages, for zones by traffic."""
    slots = np.arange(setting.subscriptions)
    zones: Can = (CanFixed if setting.tree == "fixed" else Can)(setting.brokers, sample=past)
    gateways = zones.subscribe(slots, work.points)
    network: Network = zones
    if setting.network != "can":
        network = _PLACED[setting.network](setting.brokers)
        network.subscribe(slots, work.points, _places(setting, zones, gateways))
    if setting.plus is None:
        return network
    plus = PayloadNetwork(
        inner=network, payload=setting.payload, repository=setting.plus, refers=setting.refers
    )
    count = round(setting.plain * setting.brokers)
    plus.make_plain(np.random.default_rng(setting.seed).choice(setting.brokers, count, replace=False))
    return plus


def _places(setting: SimulateSetting, zones: Can, gateways: Index) -> Index:
    """Brokers of subscriptions: those who want the same are at brokers near in number; or at random."""
    if setting.place == "random":
        return np.random.default_rng(setting.seed).integers(0, setting.brokers, len(gateways))
    rank = np.zeros(setting.brokers, np.int64)
    owners = zones.zones.in_order()
    rank[owners] = np.arange(len(owners))
    return rank[gateways]
