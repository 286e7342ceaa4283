"""CN+ as J08's figures 11 and 12 set it.

Payloads have 1,000 bytes, R 500 rows (200 for latency), directories 512 kB, repositories 0 to 3,100 entries;
100,000 subscriptions, 1,000 zones, a fixed tree.

    bars      20,000 events, 400 entries: bytes that the server sends, against the same network without caches
    latency   hop latency by repository size, R of 200 rows
    plain     half of the brokers know nothing of CN+: traffic between that of none and of all

S does not change, so a row that enters R has a payload that nobody has: what caches can save is that of S.
`unlimited` has repositories for all payloads, the most that any cache can save. `published` is the paper's
protocol; ours lets the server refer to the broker that got a payload last, which costs round trips.
Runs are kept as JSON lines in bench/results.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from claims import Claim, Claims, say
from network_traffic import RESULTS, chosen_workloads, keep_line, read_lines

from tocsin.lab.simulate.networks import SimulateSetting
from tocsin.lab.simulate.run import Simulation

__all__ = ["show_cnplus"]

KEPT = "network-cnplus.jsonl"
SCHEMES = ("ref-j+", "ref-sj-clu+")
BARS = {"ref-j+": 3.0, "ref-sj-clu+": 1.5}
SIZES = (0, 100, 400, 1000, 3100)
UNLIMITED = 1_000_000
Line = dict[str, Any]
Key = tuple[Any, ...]


def setting_of(workload: str, events: int, seed: int, rows: int, **plus: Any) -> SimulateSetting:
    return SimulateSetting(workload, events=events, seed=seed, rows=rows, payload=1000, tree="fixed", **plus)


def key_of(setting: SimulateSetting, scheme: str) -> Key:
    names = ("workload", "subscriptions", "events", "seed", "rows", "plus", "plain", "refers")
    return (*(getattr(setting, name) for name in names), scheme)


class Runs:
    """Measured runs by setting and scheme, read from the file or run now."""

    def __init__(self) -> None:
        self._path = RESULTS / KEPT
        self._known: dict[Key, Line] = {tuple(line["key"]): line for line in read_lines(self._path)}

    def get(self, setting: SimulateSetting, schemes: Sequence[str] = SCHEMES) -> Iterator[Line]:
        simulation = None
        for scheme in schemes:
            key = key_of(setting, scheme)
            if key not in self._known:
                say(f"measuring {' '.join(map(str, key))}")
                simulation = simulation or Simulation(setting)
                result = simulation.run(scheme)
                assert result.checked
                self._known[key] = {"key": list(key), **result.to_dict()}
                keep_line(self._path, self._known[key])
            yield self._known[key]


def show_cnplus(options: argparse.Namespace) -> Claims:
    """Server stress, hop latency and traffic with payload caches."""
    parts = {"bars": show_bars, "latency": show_latency, "plain": show_plain}
    for workload in chosen_workloads(options):
        for name, show in parts.items():
            if options.part in (name, "all"):
                yield from show(options, workload, Runs())


def show_bars(options: argparse.Namespace, workload: str, runs: Runs) -> Claims:
    """What the server sends, without caches over with them."""
    base = workload, options.events, options.seed, 500
    few = workload, min(options.events, options.few), options.seed, 500
    without, ours = (runs.get(setting_of(*base, **plus)) for plus in ({}, {"plus": 400}))
    others = tuple(
        runs.get(setting_of(*few, **plus))
        for plus in ({}, {"plus": 400, "refers": False}, {"plus": UNLIMITED})
    )
    for scheme, none, found, few_none, published, unlimited in zip(
        SCHEMES, without, ours, *others, strict=True
    ):
        stress = "server_stress_bytes_per_event"
        most = few_none[stress] / published[stress], few_none[stress] / unlimited[stress]
        kilobytes = none[stress] / 1e3, found[stress] / 1e3
        say(f"{workload} {scheme}: server {kilobytes[0]:,.1f} kB, {kilobytes[1]:,.1f} kB with 400 entries")
        say(f"  {few[1]:,} events: published protocol {most[0]:.2f} times less, unlimited {most[1]:.2f}")
        yield Claim(
            f"cnplus {workload} {scheme}: server stress without over with 400 entries",
            none[stress] / found[stress],
            "times",
            BARS[scheme],
        ).show(
            options,
            events=options.events,
            published_protocol=most[0],
            unlimited=most[1],
            events_of_these=few[1],
            traffic=none["traffic_bytes_per_event"] / found["traffic_bytes_per_event"],
            latency=(none["hop_latency"], found["hop_latency"]),
        )


def show_latency(options: argparse.Namespace, workload: str, runs: Runs) -> Claims:
    """Hop latency over the size of repositories, with the paper's protocol and with ours."""
    base = workload, min(options.events, options.few), options.seed, 200
    plain = {line["scheme"]: line for line in runs.get(setting_of(*base), ("rel-sel", *SCHEMES))}
    for refers in (False, True):
        curve: dict[str, dict[int, float]] = {scheme: {} for scheme in SCHEMES}
        for size in SIZES:
            for line in runs.get(setting_of(*base, plus=size, refers=refers)):
                curve[line["scheme"]][size] = line["hop_latency"]
        for scheme in SCHEMES:
            points = ", ".join(f"{size}: {latency:.2f}" for size, latency in curve[scheme].items())
            name = "ours" if refers else "published"
            without, relaxed = plain[scheme]["hop_latency"], plain["rel-sel"]["hop_latency"]
            say(f"{workload} {scheme}, {name}: {points}; without {without:.2f}; rel-sel {relaxed:.2f}")
            falls = curve[scheme][3100] <= curve[scheme][0]
            yield Claim(
                f"cnplus {workload} {scheme}, {name}: latency falls with repositories", falls, "", 1
            ).show(options, events=base[1], curve=curve[scheme], without=without, rel_sel=relaxed)


def show_plain(options: argparse.Namespace, workload: str, runs: Runs) -> Claims:
    """Traffic of half plain brokers is between that of all and of none; contents are compared on the way."""
    base = workload, min(options.events, options.few), options.seed, 500
    found = [runs.get(setting_of(*base, **plus)) for plus in ({}, {"plus": 400, "plain": 0.5}, {"plus": 400})]
    for none, half, full in zip(*found, strict=True):
        kilobytes = [line["traffic_bytes_per_event"] / 1e3 for line in (none, half, full)]
        between = kilobytes[0] > kilobytes[1] > kilobytes[2]
        say(f"{workload} {none['scheme']}: traffic {', '.join(f'{kb:,.0f}' for kb in kilobytes)} kB")
        yield Claim(f"cnplus {workload} {none['scheme']}: half plain is in between", between, "", 1).show(
            options, kilobytes_none_half_all=kilobytes, events=base[1], checked=True
        )
