"""How fast the simulator runs, one kernel delivers, and the server describes."""

from __future__ import annotations

import argparse
import time

import numpy as np
from claims import Claim, Claims, best, say, timed

from tocsin.errors import TocsinError
from tocsin.lab.simulate.networks import SimulateSetting
from tocsin.lab.simulate.run import PAPER, SCHEMES, Simulation
from tocsin.lab.simulate.run import _inserts as inserts
from tocsin.model.message import Messages
from tocsin.network._kernels.zones import ZoneTraffic, deliver_by_entry, deliver_by_tree
from tocsin.network.base import boxes_of, words_for
from tocsin.network.can import Can
from tocsin.network.zones import overlay_cells
from tocsin.reformulate.base import Scheme

__all__ = ["show_speed"]

PART = 100  # changes that the server describes together
DESCRIBED = {100_000: 5000.0, 1_000_000: 1500.0}  # changes a second


def show_speed(options: argparse.Namespace) -> Claims:
    """The simulator at a million subscriptions; messages a second of one kernel; changes a second of Clu+."""
    parts = {"simulator": show_simulator, "deliver": show_deliver, "server": show_server}
    for name, show in parts.items():
        if options.part in (name, "all"):
            yield from show(options)


def show_simulator(options: argparse.Namespace) -> Claims:
    """All nine schemes on CAN; contents of a sample are compared ten times in each."""
    setting = SimulateSetting(options.workload, options.subscriptions, options.events, seed=options.seed)
    began = last = time.perf_counter()
    simulation = Simulation(setting)
    seconds = {"set-up": time.perf_counter() - began}
    for name in PAPER:
        last = time.perf_counter()
        if not simulation.run(name).checked:
            raise TocsinError(f"{name}: nothing was compared")
        seconds[name] = time.perf_counter() - last
        say(f"{name}: {seconds[name]:.1f} s")
    yield Claim("speed: nine schemes on CAN", sum(seconds.values()), "s", at_most=180).show(
        options, seconds=seconds, subscriptions=options.subscriptions, events=options.events
    )


def prepared(options: argparse.Namespace, subscriptions: int, name: str) -> tuple[Simulation, Scheme]:
    setting = SimulateSetting(options.workload, subscriptions, options.events, seed=options.seed)
    simulation = Simulation(setting)
    return simulation, simulation._prepared(SCHEMES[name])


def describe_all(simulation: Simulation, scheme: Scheme, count: int) -> Messages:
    """Messages of the first changes, part by part."""
    work, rows, parts = simulation.work, len(simulation.work.r_key), []
    for begin in range(0, count, PART):
        cut = slice(begin, min(begin + PART, count))
        parts.append(
            scheme.describe(inserts(rows + begin, work.event_key[cut], work.event_value[cut]), begin)
        )
    return Messages.concat(parts)


def show_deliver(options: argparse.Namespace) -> Claims:
    """Messages of Ref-J+ over 1,000 zones, by the trees of both kinds; who is reached is compared first."""
    simulation, scheme = prepared(options, 100_000, "ref-j+")
    network = simulation.network
    assert isinstance(network, Can)
    messages = describe_all(simulation, scheme, min(options.events, 4000))
    overlay, cuts = network.overlay()
    cells, sizes = overlay_cells(cuts, boxes_of(messages.regions)), np.full(len(messages), 100)
    brokers, found = len(network.brokers), {}
    for name, kernel in (("entry trees", deliver_by_entry), ("the fixed tree", deliver_by_tree)):

        def run(kernel=kernel) -> ZoneTraffic:  # type: ignore[no-untyped-def]
            out = ZoneTraffic(
                np.zeros((len(messages), 3), np.int64),
                np.zeros((len(messages), words_for(brokers)), np.uint64),
                np.zeros(len(overlay.neighbour), np.int64),
                np.empty((5, words_for(brokers)), np.uint64),
            )
            kernel(overlay, cells, messages.regions.start, sizes, out)
            return out

        found[name] = run()
        fastest = best([timed(run) for _ in range(options.repeat)])
        yield Claim(
            f"speed: messages over {name}", len(messages) / fastest.seconds, "messages/s", 200_000
        ).show(options, messages=len(messages), zones_each=float(found[name].counts[:, 1].mean()))
        if not np.array_equal(found[name].counts[:, 1], found["entry trees"].counts[:, 1]):
            raise TocsinError("the trees reach different zones")


def show_server(options: argparse.Namespace) -> Claims:
    """Changes described by Clu+, in parts of 100; the first part is not counted."""
    for subscriptions, bar in DESCRIBED.items():
        simulation, scheme = prepared(options, subscriptions, "ref-sj-clu+")
        count = min(options.events, 5000)
        describe_all(simulation, scheme, PART)
        fastest = []
        for _ in range(options.repeat):
            scheme = simulation._prepared(SCHEMES["ref-sj-clu+"])
            began = time.perf_counter()
            describe_all(simulation, scheme, count)
            fastest.append(time.perf_counter() - began)
        rate = count / best(fastest).seconds
        yield Claim(f"speed: clu+ at {subscriptions:,}", rate, "changes/s", bar).show(options, changes=count)
