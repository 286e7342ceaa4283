"""What the documents claim about groups, outer joins, absence and sequences, one subcommand at a time.

    law         random changes of every form over windows: the engine is the reference at every moment
    contents    answers over random tables are those of DuckDB
    groups      10,000 GROUP BY subscriptions over 10,000 groups: changes per second
    thresholds  100,000 HAVING thresholds over a windowed count of 100,000 keys: events per second
    ranked      100,000 pages (OFFSET) and 100,000 first rows of groups: changes per second
    joins       LEFT JOIN and NOT EXISTS beside the inner join: cost of a change
    absence     a million keys: bytes for each, and what timers cost events

    python bench/groups_show.py law --cases 5000
    python bench/groups_show.py absence --keys 100000 --no-bar

Answers are compared with brute force before a time is printed. Each prints a JSON object, and exits with 1 if
an answer is wrong or a claim does not hold.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from claims import Claim, Claims, parser_of, show_claims
from groups_contents import show_contents
from windows_show import resident

from tocsin import Engine
from tocsin.engine import Rooms
from tocsin.group.room import GroupRoom
from tocsin.group.scan import GroupScan
from tocsin.join.scan import JoinScan
from tocsin.lab.memory import keep_freed, return_freed
from tocsin.lab.sequence_law import SequenceWitness, random_sequence
from tocsin.lab.sequence_law import random_change as change_sequences
from tocsin.lab.window_law import WindowWitness, random_change, random_query
from tocsin.rank.scan import RankScan

BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
FORMS = ("group", "joined group", "ranked", "outer", "union", "exists", "absent", "sequence")
SCANS = Rooms(join=JoinScan, rank=RankScan, group=GroupScan)


# -- the law ---------------------------------------------------------------------------------------


def show_law(args: argparse.Namespace) -> Claims:
    """Random changes and steps of the clock; a case is one change under three or more subscriptions."""
    for form in FORMS if args.form == "all" else [args.form.replace("-", " ")]:
        rng, cases, moments = Random(f"{args.seed} {form}"), 0, 0
        while cases < args.cases:
            if form == "sequence":
                cases += _sequence_cases(rng)
                moments = cases
            else:
                count, seen = _window_cases(rng, form, SCANS if rng.random() < 0.2 else None)
                cases, moments = cases + count, moments + seen
        yield Claim(f"law of {form}", cases, "cases", at_least=args.cases).show(args, moments=moments)


def _window_cases(rng: Random, form: str, rooms: Rooms | None) -> tuple[int, int]:
    witness = WindowWitness(rooms)
    ids = [witness.subscribe(random_query(rng, form)) for _ in range(3)]
    for n in range(25):
        random_change(witness, rng)
        if n % 8 == 7:
            witness.unsubscribe(ids.pop(rng.randrange(len(ids))))
            ids.append(witness.subscribe(random_query(rng, form)))
    witness.engine._check()
    return 25, witness.moments


def _sequence_cases(rng: Random) -> int:
    witness = SequenceWitness()
    ids = [witness.subscribe(random_sequence(rng)) for _ in range(4)]
    for n in range(12):
        change_sequences(witness, rng)
        if n % 4 == 3:
            witness.unsubscribe(ids.pop(rng.randrange(len(ids))))
            ids.append(witness.subscribe(random_sequence(rng)))
    return 12


# -- groups ----------------------------------------------------------------------------------------


def show_groups(args: argparse.Namespace) -> Claims:
    """Half of the subscriptions watch one group, half have a threshold over all; updates of random rows."""
    keep_freed()
    rng = np.random.default_rng(args.seed)
    engine = Engine()
    engine.execute("CREATE TABLE orders (id BIGINT, k BIGINT, amount DOUBLE, PRIMARY KEY (id))")
    rows = 10 * args.groups
    k, amount = rng.integers(0, args.groups, rows), rng.integers(0, 100, rows) / 4
    engine.apply("orders", pa.table({"id": np.arange(rows), "k": k, "amount": amount}))
    half = args.subscriptions // 2
    sums = np.bincount(k, amount, args.groups)
    lowest, most = np.quantile(sums, 0.999), sums.max()
    watched, above = rng.integers(0, args.groups, half), rng.integers(0, 20, half)
    totals = lowest + rng.random(half) * (most - lowest)
    one = "SELECT k, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY k HAVING k = :k AND COUNT(*) > :c"
    every = "SELECT k, SUM(amount) AS s FROM orders GROUP BY k HAVING SUM(amount) > :t"
    engine.subscribe_many(one, pa.table({"id": np.arange(half), "k": watched, "c": above}))
    engine.subscribe_many(every, pa.table({"id": half + np.arange(half), "t": totals}))
    batches = max(4, args.changes // args.batch)

    def step() -> tuple[float, int]:
        chosen = rng.choice(rows, args.batch, replace=False)
        k[chosen], amount[chosen] = (
            rng.integers(0, args.groups, args.batch),
            rng.integers(0, 100, args.batch) / 4,
        )
        ops = pa.array(["update"] * args.batch)
        batch = pa.table({"id": chosen, "k": k[chosen], "amount": amount[chosen], "_op": ops})
        began = time.perf_counter()
        found = engine.apply("orders", batch)
        return time.perf_counter() - began, len(found)

    def check() -> int:
        counts, sums = np.bincount(k, minlength=args.groups), np.bincount(k, amount, args.groups)
        for at in rng.choice(half, 100).tolist():
            n, s, key = int(counts[watched[at]]), float(sums[watched[at]]), int(watched[at])
            expected = [{"k": key, "n": n, "s": s}] if n > above[at] else []
            _compare(engine.content(at), expected)
            passing = np.flatnonzero(sums > totals[at])
            _compare(engine.content(half + at), [{"k": g, "s": float(sums[g])} for g in passing.tolist()])
        return 200

    yield from _measured(args, "changes under GROUP BY", step, check, batches, 10_000.0, engine)


def show_thresholds(args: argparse.Namespace) -> Claims:
    """`HAVING COUNT(*) >= :c`, half for one key each, half for all keys, over a window by arrival."""
    keep_freed()
    rng = np.random.default_rng(args.seed)
    now = [BEGIN]
    engine = Engine(clock=lambda: now[0])
    engine.execute("CREATE STREAM logins (user BIGINT, ok BOOLEAN)")
    half = args.subscriptions // 2
    watched, own = rng.integers(0, args.keys, half), rng.integers(1, 40, half)
    shared = rng.integers(1, 1000, half) + 30
    head = "SELECT user FROM logins WHERE ok = FALSE GROUP BY user HAVING"
    options = "WITH (window = '10 minutes')"
    one = f"{head} user = :u AND COUNT(*) >= :c {options}"
    engine.subscribe_many(one, pa.table({"id": np.arange(half), "u": watched, "c": own}))
    every = f"{head} COUNT(*) >= :c {options}"
    engine.subscribe_many(every, pa.table({"id": half + np.arange(half), "c": shared}))
    kept: list[tuple[datetime, Any]] = []
    per_window = max(2, 20 * args.keys // args.batch)

    def step() -> tuple[float, int]:
        now[0] += timedelta(minutes=10) / per_window
        user = np.minimum(rng.zipf(1.7, args.batch) - 1, args.keys - 1) if rng.random() < 0.1 else None
        user = rng.integers(0, args.keys, args.batch) if user is None else user
        kept.append((now[0], user))
        batch = pa.table({"user": user, "ok": np.zeros(args.batch, np.bool_)})
        began = time.perf_counter()
        found = engine.apply("logins", batch)
        return time.perf_counter() - began, len(found)

    def check() -> int:
        since = now[0] - timedelta(minutes=10)
        counts = np.bincount(np.concatenate([u for when, u in kept if when > since]), minlength=args.keys)
        for at in rng.choice(half, 100).tolist():
            expected = [{"user": int(watched[at])}] if counts[watched[at]] >= own[at] else []
            _compare(engine.content(at), expected)
            passing = np.flatnonzero(counts >= shared[at]).tolist()
            _compare(engine.content(half + at), [{"user": user} for user in passing])
        return 200

    for _ in range(per_window + 2):  # the window is full, so events leave it too
        step()
    batches = max(4, args.changes // args.batch)
    yield from _measured(args, "events under HAVING thresholds", step, check, batches, 50_000.0, engine)


def _measured(
    args: argparse.Namespace,
    name: str,
    step: Callable[[], tuple[float, int]],
    check: Callable[[], int],
    batches: int,
    bar: float,
    engine: Engine,
) -> Claims:
    """Steps, checked before and after; the claim is the rate of all of them together."""
    for _ in range(3):  # kernels are compiled
        step()
    compared = check()
    spent, deltas, slowest = 0.0, 0, 0.0
    for _ in range(batches):
        took, found = step()
        spent, deltas, slowest = spent + took, deltas + found, max(slowest, took)
    compared += check()
    made = batches * args.batch
    yield Claim(name, made / spent, "per second", at_least=bar).show(
        args,
        subscriptions=args.subscriptions,
        deltas_per_change=round(deltas / made, 2),
        slowest_batch_s=round(slowest, 3),
        batch=args.batch,
        compared=compared,
        stats=engine.stats()["group"],
    )


def _compare(found: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]]) -> None:
    def key(row: dict[str, Any]) -> str:
        return str(sorted(row.items()))

    if sorted(map(key, found)) != sorted(map(key, expected)):
        raise SystemExit(f"wrong: {found[:3]} instead of {expected[:3]}")


# -- ranked ----------------------------------------------------------------------------------------

_RANKED = {
    "pages": "SELECT id, x FROM items WHERE price BETWEEN :lo AND :hi ORDER BY x LIMIT 3 OFFSET 2",
    "first rows": "SELECT id, x FROM items WHERE price BETWEEN :lo AND :hi"
    " QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= 2",
}


def show_ranked(args: argparse.Namespace) -> Claims:
    """Ranges of a price; updates of random rows. Beside it the scan, with one subscription in a thousand."""
    for name, bar in (("pages", 1000.0), ("first rows", 1000.0)):
        scanned = _ranked_rate(args, name, args.subscriptions // 1000, GroupScan)
        yield Claim(
            f"changes under {name}", _ranked_rate(args, name, args.subscriptions), "per second", at_least=bar
        ).show(args, subscriptions=args.subscriptions, per_second_one_by_one=round(scanned / 1000, 3))


def _ranked_rate(args: argparse.Namespace, name: str, subscriptions: int, room: Any = GroupRoom) -> float:
    """Changes per second."""
    rng = np.random.default_rng(args.seed)
    engine = Engine(rooms=Rooms(group=room))
    engine.execute("CREATE TABLE items (id BIGINT, k BIGINT, x BIGINT, price BIGINT, PRIMARY KEY (id))")
    rows, most = args.rows, 1_000_000
    k, x = rng.integers(0, args.groups, rows), rng.integers(0, most, rows)
    price = rng.integers(0, most, rows)
    engine.apply("items", pa.table({"id": np.arange(rows), "k": k, "x": x, "price": price}))
    low = rng.integers(0, most, subscriptions)
    high = low + 5 * most // args.subscriptions
    engine.subscribe_many(_RANKED[name], pa.table({"id": np.arange(subscriptions), "lo": low, "hi": high}))
    spent, made = 0.0, 0
    while made < args.changes + 2 * args.batch:
        some = rng.choice(rows, args.batch, replace=False)
        x[some], price[some] = rng.integers(0, most, args.batch), rng.integers(0, most, args.batch)
        ops = pa.array(["update"] * args.batch)
        batch = pa.table({"id": some, "k": k[some], "x": x[some], "price": price[some], "_op": ops})
        began = time.perf_counter()
        engine.apply("items", batch)
        spent += (time.perf_counter() - began) * (made >= 2 * args.batch)
        made += args.batch
    for at in rng.choice(subscriptions, min(subscriptions, 50), replace=False).tolist():
        mine = np.flatnonzero((price >= low[at]) & (price <= high[at]))
        mine = mine[np.lexsort((mine, x[mine]))].tolist()
        group: dict[int, list[int]] = {}
        for row in mine:
            group.setdefault(int(k[row]), []).append(row)
        firsts = [row for own in group.values() for row in own[:2]]
        chosen = mine[2:5] if name == "pages" else firsts
        _compare(engine.content(at), [{"id": row, "x": int(x[row])} for row in chosen])
    return args.changes / spent


# -- joins -----------------------------------------------------------------------------------------

_JOINED = {
    "inner": "SELECT o.id, p.amount FROM orders o JOIN payments p ON o.id = p.of"
    " WHERE o.total BETWEEN :lo AND :hi",
    "left": "SELECT o.id, p.amount FROM orders o LEFT JOIN payments p ON o.id = p.of"
    " WHERE o.total BETWEEN :lo AND :hi",
    "not exists": "SELECT o.id, o.total FROM orders o WHERE o.total BETWEEN :lo AND :hi"
    " AND NOT EXISTS (SELECT 1 FROM payments p WHERE p.of = o.id)",
}


def show_joins(args: argparse.Namespace) -> Claims:
    """Orders and payments come and go in batches; each form with as many subscriptions over the same rows."""
    rounds = [{name: _join_times(args, name) for name in _JOINED} for _ in range(args.repeat)]
    times = {name: min(times[name] for times in rounds) for name in _JOINED}
    for name in ("left", "not exists"):
        ratio = times[name] / times["inner"]
        yield Claim(f"{name} beside the inner join", ratio, "times its cost", at_most=2.0).show(
            args,
            us_per_change={n: round(1e6 * t, 2) for n, t in times.items()},
            subscriptions=args.subscriptions,
        )


def _join_times(args: argparse.Namespace, name: str) -> float:
    """Seconds for a change."""
    rng = np.random.default_rng(args.seed)
    engine = Engine()
    engine.execute("CREATE TABLE orders (id BIGINT, total BIGINT, PRIMARY KEY (id))")
    engine.execute("CREATE TABLE payments (id BIGINT, of BIGINT, amount BIGINT, PRIMARY KEY (id))")
    rows, most = args.rows, 1_000_000
    width = 5 * most // args.subscriptions
    low = rng.integers(0, most, args.subscriptions)
    params = {"id": np.arange(args.subscriptions), "lo": low, "hi": low + width}
    total, of = rng.integers(0, most, rows), rng.integers(0, 2 * rows, rows)
    amount = rng.integers(0, 100, rows)
    engine.apply("orders", pa.table({"id": np.arange(rows), "total": total}))
    engine.apply("payments", pa.table({"id": np.arange(rows), "of": of, "amount": amount}))
    engine.subscribe_many(_JOINED[name], pa.table(params))
    spent = 0.0
    for number in range(2 + args.changes // (2 * args.batch)):
        some = rng.choice(rows, args.batch, replace=False)
        total[some] = rng.integers(0, most, args.batch)
        more = rng.choice(rows, args.batch, replace=False)
        of[more], amount[more] = rng.integers(0, 2 * rows, args.batch), rng.integers(0, 100, args.batch)
        ops = pa.array(["update"] * args.batch)
        orders = pa.table({"id": some, "total": total[some], "_op": ops})
        payments = pa.table({"id": more, "of": of[more], "amount": amount[more], "_op": ops})
        began = time.perf_counter()
        engine.apply_all({"orders": orders, "payments": payments})
        spent += (time.perf_counter() - began) * (number >= 2)
    partners: dict[int, list[int]] = {}
    for key, paid in zip(of.tolist(), amount.tolist(), strict=True):
        partners.setdefault(key, []).append(paid)
    for at in rng.choice(args.subscriptions, 50).tolist():
        mine = np.flatnonzero((total >= low[at]) & (total <= low[at] + width)).tolist()
        pairs = [{"id": o, "amount": paid} for o in mine for paid in partners.get(o, ())]
        alone = [o for o in mine if o not in partners]
        expected = {
            "inner": pairs,
            "left": pairs + [{"id": o, "amount": None} for o in alone],
            "not exists": [{"id": o, "total": int(total[o])} for o in alone],
        }[name]
        _compare(engine.content(at), expected)
    return spent / (args.changes // (2 * args.batch) * 2 * args.batch)


# -- absence ---------------------------------------------------------------------------------------


def show_absence(args: argparse.Namespace) -> Claims:
    """Keys once seen, and keys of a table: bytes for each beside the rows, events with timers and without."""
    for kind in ("once seen", "of a table"):
        used, rates = _absent(args, kind)
        yield Claim(f"absence of keys {kind}", used, "bytes a key", at_most=100.0).show(args, keys=args.keys)
        ratio = rates["with timers"] / rates["without"]
        yield Claim(f"events of keys {kind}, with timers", ratio, "of the rate without", at_least=0.9).show(
            args, events_per_second={name: round(rate) for name, rate in rates.items()}
        )


def _absent(args: argparse.Namespace, kind: str) -> tuple[float, dict[str, float]]:
    """Bytes a key; and events per second while no timer is due, and while all of them are."""
    rng, now = np.random.default_rng(args.seed), [BEGIN]
    engine = Engine(clock=lambda: now[0])
    engine.execute("CREATE STREAM beats (host BIGINT)")
    engine.execute("CREATE TABLE hosts (host BIGINT, PRIMARY KEY (host))")
    hosts, batches = rng.permutation(args.keys), np.array_split(np.arange(args.keys), 20)
    if kind == "of a table":
        engine.apply("hosts", pa.table({"host": hosts}))
        sql = "SELECT h.host FROM hosts h WHERE NOT EXISTS (SELECT 1 FROM beats b WHERE b.host = h.host)"
        options = "WITH (window = '5 minutes')"
    else:
        sql, options = "SELECT DISTINCT host FROM beats", "WITH (window = '5 minutes', absent = '1 day')"
    one = Engine(clock=lambda: now[0])  # compiles the kernels, and loads them
    one.execute("CREATE STREAM beats (host BIGINT); CREATE TABLE hosts (host BIGINT, PRIMARY KEY (host))")
    one.subscribe(f"{sql} {options}")
    for _ in range(3):
        one.apply("beats", pa.table({"host": hosts[:1000]}))
        now[0] += timedelta(minutes=6)
        one.tick()
    gc.collect()
    return_freed()
    before = resident()
    id = engine.subscribe(f"{sql} {options}").id
    for some in batches:
        engine.apply("beats", pa.table({"host": hosts[some]}))
    gc.collect()
    return_freed()
    used = (resident() - before) * 2**20 / args.keys
    rounds = 5 * args.repeat  # a beat a minute in a window of five: a timer is renewed each fifth time
    spent = {"without": 0.0, "with timers": 0.0}  # in turn: none is due, as no time passes; or they are
    for name in [*spent] * rounds:
        now[0] += timedelta(minutes=name == "with timers")
        for some in batches:
            table = pa.table({"host": hosts[some]})
            began = time.perf_counter()
            found = engine.apply("beats", table)
            spent[name] += time.perf_counter() - began
            if len(found):
                raise SystemExit("wrong: a key that came in time was absent")
    rates = {name: rounds * args.keys / took for name, took in spent.items()}
    now[0] += timedelta(minutes=4)
    late = hosts[: args.keys // 3]
    engine.apply("beats", pa.table({"host": late}))
    now[0] += timedelta(minutes=2)
    began = time.perf_counter()
    found = engine.tick()
    rates["absent by a tick"] = len(found) / (time.perf_counter() - began)
    expected = np.sort(hosts[args.keys // 3 :])
    rows = np.sort([row["host"] for row in engine.content(id)])
    if len(found) != len(expected) or not np.array_equal(rows, expected):
        raise SystemExit(f"wrong: {len(found)} keys are absent, not {len(expected)}")
    return used, rates


if __name__ == "__main__":
    commands: dict[Any, dict[str, Any]] = {
        show_law: {"cases": 5000, "form": "all"},
        show_contents: {"contents": 20_000},
        show_groups: {"subscriptions": 10_000, "groups": 10_000, "changes": 100_000, "batch": 5000},
        show_thresholds: {"subscriptions": 100_000, "keys": 100_000, "changes": 1_000_000, "batch": 20_000},
        show_ranked: {
            "subscriptions": 100_000,
            "rows": 100_000,
            "groups": 1000,
            "changes": 20_000,
            "batch": 1000,
        },
        show_joins: {"subscriptions": 1000, "rows": 100_000, "changes": 40_000, "batch": 1000},
        show_absence: {"keys": 1_000_000},
    }
    sys.exit(show_claims(parser_of(__doc__, commands, repeat=2).parse_args()))
