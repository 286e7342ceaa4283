"""What compiling costs, kernel by kernel: CPU seconds of typing, lowering and LLVM, with an empty cache.

    python bench/compile_times.py                        all workloads
    python bench/compile_times.py match --save old.json
    python bench/compile_times.py match --against old.json

Each workload runs small inputs through every way that its room has, compiling whatever is called. Times are
those of the compiling thread (`time.thread_time`), so that a busy machine does not change them much. The
kernels that a kernel calls are compiled while it is typed; their time is theirs alone.

`front` is what Numba does before LLVM: bytecode, type inference, rewriting. `lower` writes LLVM's input;
`llvm` is time inside of LLVM: parsing, linking, optimising, machine code.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba.core import event

PARTS = ("front", "lower", "llvm")


@dataclass
class KernelCost:
    """What one kernel cost, over all its signatures."""

    signatures: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


class CompileClock(event.Listener):
    """Listens to Numba's compiler; attributes the CPU time of each thread to what it is compiling."""

    def __init__(self) -> None:
        self.kernels: dict[str, KernelCost] = defaultdict(KernelCost)
        self._own = threading.local()
        for kind in ("numba:compile", "numba:run_pass", "numba:llvm_lock"):
            event.register(kind, self)

    def on_start(self, event: Any) -> None:
        self._charge()
        stack = self._own.stack
        kernel, part = stack[-1] if stack else (None, "front")
        if event.kind == "numba:compile":
            function = event.data["dispatcher"].py_func
            module = function.__module__.removeprefix("tocsin.").replace("._kernels", "")
            kernel, part = f"{module}.{function.__qualname__}", "front"
            self.kernels[kernel].signatures.append(str(event.data["args"]))
        elif event.kind == "numba:run_pass":
            part = "lower" if "lowering" in event.data["name"] else "front"
        else:
            part = "llvm"
        stack.append((kernel, part))

    def on_end(self, event: Any) -> None:
        self._charge()
        self._own.stack.pop()

    def _charge(self) -> None:
        """Charge the time since the last event to what is on top of the stack."""
        now = time.thread_time()
        if not hasattr(self._own, "stack"):
            self._own.stack = []
        elif self._own.stack:
            kernel, part = self._own.stack[-1]
            if kernel is not None:
                self.kernels[kernel].seconds[part] += now - self._own.since
        self._own.since = now


# -- workloads -------------------------------------------------------------------------------------


def match_workload() -> None:
    """The default index on every access path, under every policy of building, merging and removing."""
    from tocsin.match.build.cost import CostModel
    from tocsin.match.index import Auto, MergePolicy
    from tocsin.model.change import ChangeBatch
    from tocsin.model.schema import Stream
    from tocsin.predicate.columnar import flat_predicates

    policies = (
        MergePolicy(),
        MergePolicy(costs=CostModel(hit=1e9, bit=1e9)),
        MergePolicy(costs=CostModel(check=1e6, bit=1e6, hit=0, probe=0)),
        MergePolicy(costs=CostModel(check=1e6, hit=1e6, bit=0, bit_entry=0, bit_row=0)),
        MergePolicy(costs=CostModel(bit=100.0, turn=0.0, look_up=0.0), removed_share=0.1),
        MergePolicy(batch_share=100.0, mutable_share=1e9, cost_factor=1e9),
        MergePolicy(
            batch_share=1e9,
            mutable_share=1e9,
            cost_factor=1e9,
            costs=CostModel(compare=1e3, follow=1e3, probe=0),
        ),
        MergePolicy(
            batch_share=1e9,
            mutable_share=1e9,
            migrate_size=2,
            costs=CostModel(migrate=0, encode=1e9, build=1e15, build_start=1e15),
        ),
        MergePolicy(review_events=0, rebuild_ratio=0.0, min_cost=-1.0, costs=CostModel(build=0.0)),
        MergePolicy(background_size=0, segments_per_size=2, smallest_size=1),
    )
    rng, stream = np.random.default_rng(1), Stream("events", ())
    ops = ["=", "=", "<=", ">=", "!="]

    def some(first: int, count: int) -> pa.Table:
        rows = []
        for _ in range(count):
            names = [0, 1, *(2 + rng.choice(8, rng.integers(0, 4), replace=False)).tolist()]
            rows.append(
                [
                    {"attribute": f"a{a}", "op": ops[rng.integers(5)] if a > 1 else "=", "number": float(v)}
                    for a, v in zip(names, rng.integers(0, 6, len(names)), strict=True)
                ]
            )
        return pa.table({"id": np.arange(first, first + count), "predicates": rows})

    for policy in policies:
        index = Auto(policy)
        for first in range(0, 600, 200):
            filters, _ = flat_predicates(stream, some(first, 200))
            index.add(np.arange(first, first + 200), filters)
            events = [{f"a{a}": float(rng.integers(0, 7)) for a in range(10)} for _ in range(20)]
            batch, _ = ChangeBatch.from_dicts(stream, events)
            index.match(batch.rows)
            index.remove(np.arange(first, first + 40))
            index.wait()
            index.match(batch.rows)


QUERIES = (
    "SELECT * FROM events WHERE model = 'x{n}' AND price <= {m}",
    "SELECT * FROM events WHERE color IN ('red', 'c{n}') OR storage >= {m}",
    "SELECT * FROM events WHERE model LIKE 'x{n}%' AND NOT price BETWEEN {n} AND {m}",
    "SELECT * FROM events WHERE model RLIKE 'x[{n}-9]' AND price IS NULL",
    "SELECT symbol FROM stocks WHERE per BETWEEN {n} AND {m} AND risk < 50",
    "SELECT symbol, rating FROM stocks JOIN reviews USING (symbol) WHERE per < {m} AND rating >= {n}",
    "SELECT * FROM stocks s JOIN stocks t ON t.per - s.per BETWEEN -{n} AND {m}",
    "SELECT symbol FROM stocks JOIN reviews USING (symbol) JOIN notes USING (id) WHERE per < {m}",
    "SELECT * FROM stocks WHERE risk BETWEEN {n} AND {m} ORDER BY per LIMIT 3",
    "SELECT symbol FROM stocks WHERE risk BETWEEN {n} AND {m} AND sector = 's{n}' ORDER BY per DESC LIMIT 2",
    "SELECT MIN(per) FROM stocks WHERE risk BETWEEN {n} AND {m}",
    "SELECT MAX(per), COUNT(*), AVG(per) FROM stocks WHERE risk <= {m} AND sector = 's{n}'",
    "SELECT COUNT(*), SUM(per) FROM stocks WHERE risk BETWEEN {n} AND {m}",
    "SELECT DISTINCT sector FROM stocks WHERE risk BETWEEN {n} AND {m}",
    "SELECT DISTINCT sector FROM stocks WHERE per >= {n}",
)


def rooms_workload() -> None:
    """An engine with every shape: rows come, change and go, subscriptions come late and go."""
    import tocsin

    rng, engine = np.random.default_rng(2), tocsin.Engine()
    engine.execute("CREATE STREAM events")
    engine.execute(
        "CREATE TABLE stocks (symbol STRING, sector STRING, per DOUBLE, risk BIGINT, PRIMARY KEY (symbol))"
    )
    engine.execute("CREATE TABLE reviews (id BIGINT, symbol STRING, rating DOUBLE, PRIMARY KEY (id))")
    engine.execute("CREATE TABLE notes (id BIGINT, note STRING, PRIMARY KEY (id))")

    def subscribe() -> list[Any]:
        each = [
            query.format(n=rng.integers(1, 5), m=rng.integers(5, 60)) for query in QUERIES for _ in range(20)
        ]
        return list(engine.subscribe_texts(each))

    def stock(n: int) -> dict[str, Any]:
        return {
            "symbol": f"x{n}",
            "sector": f"s{n % 5}",
            "per": float(rng.integers(60)),
            "risk": int(rng.integers(60)),
        }

    first = subscribe()
    for n in range(40):
        engine.insert("stocks", stock(n))
        engine.insert("reviews", {"id": n, "symbol": f"x{n}", "rating": float(n % 7)})
        engine.insert("notes", {"id": n, "note": "a"})
        engine.publish("events", {"model": f"x{n % 9}", "price": n, "color": "red", "storage": n})
    late = subscribe()
    for n in range(40):
        engine.update("stocks", stock(n))
    for one in (*first[::2], *late[::3]):
        engine.unsubscribe(one)
    for n in range(20):
        engine.delete("stocks", stock(n))
        engine.publish("events", {"model": f"x{n % 9}", "price": n, "color": "red", "storage": n})


def product_workload() -> None:
    """All rehearsals of the warm-up: every kernel of the product, with the types it is used with."""
    from tocsin.warmup.scenarios import REHEARSALS

    for rehearse in REHEARSALS.values():
        rehearse()


WORKLOADS: dict[str, Callable[[], None]] = {
    "match": match_workload,
    "rooms": rooms_workload,
    "product": product_workload,
}


# -- report ----------------------------------------------------------------------------------------


def table(kernels: dict[str, KernelCost], before: dict[str, Any], most: int) -> list[str]:
    """The dearest kernels first: seconds now, by part, signatures, and seconds before."""
    names = sorted(kernels, key=lambda name: -max(kernels[name].total, _before(before, name)))
    out = [f"{'kernel':60} {'n':>3} {'front':>7} {'lower':>7} {'llvm':>7} {'total':>7} {'before':>7}"]
    for name in names[:most]:
        cost = kernels[name]
        parts = " ".join(f"{cost.seconds[part]:7.2f}" for part in PARTS)
        out.append(
            f"{name:60} {len(cost.signatures):3} {parts} {cost.total:7.2f} {_before(before, name):7.2f}"
        )
    sums = {part: sum(cost.seconds[part] for cost in kernels.values()) for part in PARTS}
    count = sum(len(cost.signatures) for cost in kernels.values())
    parts = " ".join(f"{sums[part]:7.2f}" for part in PARTS)
    earlier = sum(_before(before, name) for name in before)
    out.append(f"{'all':60} {count:3} {parts} {sum(sums.values()):7.2f} {earlier:7.2f}")
    return out


def _before(before: dict[str, Any], name: str) -> float:
    return sum(before[name]["seconds"].values()) if name in before else 0.0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="default: all of them")
    parser.add_argument("--save", type=Path, help="write all figures to this JSON file")
    parser.add_argument("--against", type=Path, help="compare with figures that were saved before")
    parser.add_argument("--most", type=int, default=40, help="kernels to show")
    options = parser.parse_args(argv)
    cache = tempfile.mkdtemp(prefix="tocsin-compile-times-")
    os.environ |= {"TOCSIN_CACHE": cache, "TOCSIN_JIT": "always"}  # before the package is imported
    clock = CompileClock()
    began = time.process_time()
    for name in options.workloads or WORKLOADS:
        WORKLOADS[name]()
        print(f"{name}: {time.process_time() - began:.1f} s of CPU so far", file=sys.stderr)
    before = json.loads(options.against.read_text()) if options.against else {}
    for kernel in set(before) - set(clock.kernels):
        clock.kernels[kernel]  # gone: shown with 0
    print("\n".join(table(clock.kernels, before, options.most)))
    if options.save:
        found = {name: vars(cost) for name, cost in clock.kernels.items()}
        options.save.write_text(json.dumps(found, indent=1))
    shutil.rmtree(cache)
    return 0


if __name__ == "__main__":
    sys.exit(main())
