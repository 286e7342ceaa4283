"""After a warm-up nothing is left to compile: in the README's examples, for every shape, early and late."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tocsin
from tocsin.compiled.cache import roots
from tocsin.errors import TocsinError
from tocsin.lab.bench.json_workloads import JSON_WORKLOADS
from tocsin.warmup import rehearsals, run

ROOT = Path(__file__).parents[1]
TABLES = """
import pyarrow as pa
import tocsin
from datetime import date
e = tocsin.Engine()
e.execute("CREATE TABLE r (id BIGINT, k BIGINT, s STRING, a DOUBLE, PRIMARY KEY (id))")
e.execute("CREATE TABLE q (id BIGINT, k BIGINT, s STRING, c DOUBLE, PRIMARY KEY (id))")
e.execute("CREATE TABLE u (id BIGINT, k BIGINT, s STRING, d DOUBLE, PRIMARY KEY (id))")
def change(first):
    for name, column in (("r", "a"), ("q", "c"), ("u", "d")):
        e.insert(name, {"id": first, "k": 1, "s": "x", column: 1.5})
        e.update(name, {"id": first, column: 2.5})
        rows = range(first + 1, first + 30)
        e.apply(name, pa.table({"id": rows, "k": [n % 3 for n in rows], "s": ["y"] * 29, column: [2.0] * 29}))
        e.delete(name, {"id": first})
"""
SHAPES = {
    "filter": "SELECT * FROM r WHERE a > {n} AND s = 'y'",
    "join": "SELECT * FROM r JOIN q USING (k) WHERE a > {n} AND c < 50",
    "join of texts": "SELECT r.id FROM r JOIN q USING (s) WHERE a > {n}",
    "band": "SELECT * FROM r JOIN q ON r.a - q.c BETWEEN -{n} AND 10",
    "multi-way": "SELECT * FROM r JOIN q ON r.k = q.k JOIN u ON u.k = q.k WHERE a > {n}",
    "extreme": "SELECT MIN(a), MAX(k) FROM r WHERE a > {n}",
    "aggregate": "SELECT COUNT(*), SUM(k), AVG(a) FROM r WHERE a BETWEEN {n} AND 50",
    "distinct": "SELECT DISTINCT s FROM r WHERE a > {n}",
    "top-k": "SELECT * FROM r WHERE a > {n} ORDER BY a, s LIMIT 3",
    "top-k of several lengths": "SELECT * FROM r WHERE a > {n} ORDER BY k LIMIT {n}",
}

KINDS = {
    "groups": (
        "SELECT s, COUNT(*), SUM(a), MIN(a), AVG(k) FROM r WHERE a > {n} GROUP BY s",
        "SELECT s, k, MAX(s) FROM r GROUP BY s, k HAVING SUM(k) > {n}",
        "SELECT COUNT(*) FILTER (WHERE a > {n}), COUNT(DISTINCT s) FROM r",
        "SELECT * FROM r WHERE a > {n} ORDER BY a, s LIMIT 3 OFFSET 1",
        "SELECT * FROM r WHERE a > {n} QUALIFY ROW_NUMBER() OVER (PARTITION BY s ORDER BY a) <= 2",
        "SELECT r.s, SUM(c) FROM r JOIN q ON r.id = q.id WHERE a > {n} GROUP BY r.s",
        "SELECT r.id FROM r JOIN q ON r.id = q.id WHERE a > {n} ORDER BY c LIMIT 3",
    ),
    "partners": (
        "SELECT * FROM r LEFT JOIN q ON r.id = q.id WHERE a > {n}",
        "SELECT * FROM r FULL JOIN q ON r.s = q.s AND a > {n}",
        "SELECT * FROM r WHERE EXISTS (SELECT 1 FROM q WHERE q.k = r.k AND c > {n})",
        "SELECT * FROM r WHERE s NOT IN (SELECT s FROM q WHERE c > {n})",
        "SELECT id FROM r WHERE a > {n} UNION ALL SELECT id FROM q WHERE c > {n}",
    ),
    "absence and sequences": (
        "SELECT id FROM r WHERE NOT EXISTS (SELECT 1 FROM v WHERE v.s = r.s) WITH (window = '{n} minutes')",
        "SELECT DISTINCT s FROM v WHERE x > {n} WITH (window = '5 seconds', absent = '1 day')",
        "SELECT w.x FROM v FOLLOWED BY v AS w USING (s) WITHIN '5 seconds' WHERE v.x < {n} AND w.x > 1",
    ),
}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which everything is compiled: that of this machine, brought up to date and copied."""
    run()
    folder = tmp_path_factory.mktemp("warm") / "cache"
    for root in reversed(roots()):
        if root.is_dir():
            shutil.copytree(root, folder, dirs_exist_ok=True)
    return folder


def compiled_by(program: str, cache: Path) -> list[str]:
    """The kernels that a program compiles if it interprets none."""
    program = textwrap.dedent(program) + "\nfrom tocsin.compiled import compilations\nprint(compilations())"
    given = os.environ | {"TOCSIN_CACHE": str(cache), "TOCSIN_JIT": "always"}
    given["PYTHONPATH"] = str(Path(tocsin.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=given, check=False
    )
    assert done.returncode == 0, done.stderr
    return eval(done.stdout.splitlines()[-1])


def test_readme(warm: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    plain = [example for example in examples if "tocsin.spark" not in example]
    assert len(plain) >= 3
    assert compiled_by("\n".join(plain), warm) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_from_its_first_subscription_to_its_last(shape: str, warm: Path) -> None:
    program = f"""
ids = [e.subscribe({SHAPES[shape]!r}.format(n=n)) for n in (1, 2)]
change(0)
late = e.subscribe({SHAPES[shape]!r}.format(n=3))
change(100)
e.unsubscribe(ids[0])
e.unsubscribe(late)
change(200)
e.content(ids[1])
"""
    assert compiled_by(TABLES + program, warm) == []


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_of_a_kind_together(kind: str, warm: Path) -> None:
    program = f"""
e.execute("CREATE STREAM v (s STRING, x BIGINT)")
texts = {KINDS[kind]!r}
def events():
    for n in (1, 60):
        e.apply("v", [{{"s": "y", "x": i % 9}} for i in range(n)])
    e.publish("v", {{"s": "x", "x": 1}})
early = [e.subscribe(text.format(n=n)) for text in texts for n in (1, 2)]
change(0)
events()
late = [e.subscribe(text.format(n=3)) for text in texts]
many = [e.subscribe_texts([text.format(n=n) for n in range(4, 80)]) for text in texts]
change(100)
events()
for ids in many:
    e.unsubscribe_many(ids[:60])
for one in early[::2] + late:
    e.unsubscribe(one)
change(200)
events()
e.contents()
"""
    assert compiled_by(TABLES + program, warm) == []


@pytest.mark.parametrize("stream", ["hits", "hits (page STRING, ms BIGINT, at TIMESTAMP)"])
def test_filters_over_streams_that_come_and_go(stream: str, warm: Path) -> None:
    program = f"""
import pyarrow as pa
import tocsin
e = tocsin.Engine()
e.execute("CREATE STREAM {stream}")
first = e.subscribe("SELECT * FROM hits WHERE page LIKE '/pay%' AND ms > 5")
e.publish("hits", {{"page": "/pay/1", "ms": 7}})
texts = [f"SELECT * FROM hits WHERE ms BETWEEN {{n}} AND {{n + 9}} OR page = 'p{{n}}'" for n in range(200)]
ids = e.subscribe_texts(texts)
e.apply("hits", pa.table({{"page": [f"p{{n}}" for n in range(99)], "ms": range(99)}}))
late = e.subscribe("SELECT page FROM hits WHERE page RLIKE 'x+$' AND NOT ms = 3")
e.publish("hits", {{"page": "p7", "ms": 7}})
e.unsubscribe(first)
e.unsubscribe(late)
e.unsubscribe_many(ids[:150])
e.publish("hits", {{"page": "p170", "ms": 170}})
"""
    assert compiled_by(program, warm) == []


def test_a_few_filters_beside_many(warm: Path) -> None:
    program = """
import tocsin
e = tocsin.Engine()
e.execute("CREATE STREAM ev")
text = "SELECT * FROM ev WHERE a BETWEEN {} AND {} AND b = 'x{}'"
e.subscribe_texts([text.format(n, n + 9, n % 40) for n in range(6000)])
e.apply("ev", [{"a": n, "b": f"x{n % 40}"} for n in range(2000)])
e.subscribe_texts([f"SELECT * FROM ev WHERE a > {n} AND NOT b = 'x{n}' AND c > 5" for n in range(80)])
e.apply("ev", [{"a": 1, "b": "x"}, {"a": 3, "c": 9}])
assert e.stats()["match"]["ev"]["paths"]["mutable"]
assert len(e.publish("ev", {"a": 70, "b": "x", "c": 6}))
"""
    assert compiled_by(program, warm) == []


LIVE = """
import sys
from pathlib import Path
from tests.spark.test_pipeline import LAYOUT, NOW, source, write
from tests.spark.workload import DDL, World, subscriptions
from tocsin.spark import MemorySink, Pipeline, session
folder, world, sink = Path(sys.argv[1]), World(1), MemorySink()
spark = session("live", log=folder / "spark.log")
texts = subscriptions()
pipeline = Pipeline(spark, ddl=DDL, subscriptions=texts[::2], state_dir=folder / "state", layout=LAYOUT)
def run(number):
    write(folder / "in", number, world.changes(80))
    pipeline.start(source(spark, folder / "in"), sink=sink, trigger=NOW).awaitTermination()
run(0)
pipeline.change(add=texts[1::2])
run(1)
pipeline.change(remove=[number for number, _, _ in texts[::3]])
run(2)
assert len(sink.batches) == 3 and all(len(batch) for batch in sink.batches.values())
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_live_changes_on_spark(warm: Path, tmp_path: Path) -> None:
    """Every process writes what it compiles to the cache, so a cache without a new file says it for all."""
    before = {path.name for path in warm.rglob("*.nbc")}
    assert before
    run_in_processes(["-c", LIVE, str(tmp_path)], warm)
    assert {path.name for path in warm.rglob("*.nbc")} - before == set()


@pytest.mark.skipif("TOCSIN_TEST_CLUSTER" not in os.environ, reason="takes minutes: make test-cluster")
def test_the_demo(warm: Path, tmp_path: Path) -> None:
    before = {path.name for path in warm.rglob("*.nbc")}
    run_in_processes(["-m", "tocsin", "demo", "--days", "1", "--dir", str(tmp_path / "demo")], warm)
    assert {path.name for path in warm.rglob("*.nbc")} - before == set()


def run_in_processes(arguments: list[str], cache: Path) -> None:
    """Run a program of several processes, which interpret no kernel and store what they compile."""
    given = os.environ | {"TOCSIN_CACHE": str(cache), "TOCSIN_JIT": "always"}
    given["PYTHONPATH"] = os.pathsep.join([str(Path(tocsin.__file__).parents[1]), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=given, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", JSON_WORKLOADS)
def test_rules_found_by_two_values(kind: str, warm: Path) -> None:
    program = f"""
import json
import tocsin
from tocsin.lab.bench.json_workloads import json_workload, rules_table
rules, events = json_workload({kind!r}, 20_000, 600, 0)
e = tocsin.Engine()
e.execute("CREATE STREAM ev")
e.subscribe_predicates("ev", rules_table(rules))
lines = [json.dumps(event).encode() for event in events]
e.apply("ev", b"\\n".join(lines))
e.publish_json("ev", lines[0])
"""
    assert compiled_by(program, warm) == []


def test_joins_followed_over_a_network(warm: Path) -> None:
    program = """
import tocsin
e = tocsin.Engine()
e.execute("CREATE TABLE r (id BIGINT, k BIGINT, a BIGINT, PRIMARY KEY (id))")
e.execute("CREATE TABLE s (id STRING, k BIGINT, c DOUBLE, PRIMARY KEY (id))")
with tocsin.serve(e, "127.0.0.1:0") as server, tocsin.connect(f"127.0.0.1:{server.port}") as client:
    found = client.subscribe("SELECT * FROM r JOIN s ON r.k = s.k WHERE a > 3 AND c < 9")
    for n in range(20):
        e.insert("r", {"id": n, "k": n % 3, "a": n})
        e.insert("s", {"id": str(n), "k": n % 3, "c": n / 2})
    found.wait(e.last_seq)
    assert found.content()
"""
    assert compiled_by(program, warm) == []


def test_a_second_warm_up_compiles_nothing_and_reports_progress(warm: Path) -> None:
    seen: list[tuple[int, int, str, int]] = []
    done = run(lambda *at: seen.append(at), workers=1, only=["retained events"])
    assert done.kernels == 0 and done.seconds > 0 and done.folder == roots()[0]
    assert seen == [(1, 1, "retained events", 0)]


def test_an_unknown_rehearsal_is_rejected() -> None:
    with pytest.raises(TocsinError, match="no rehearsal 'opera'"):
        run(only=["opera"])
    assert len(set(rehearsals())) == len(rehearsals()) > 5
