"""Shard hosts without Spark: as good as in the process itself, and nothing is lost when they die."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest

from tests.spark.simulated import Simulated, clear_live_shards
from tests.spark.workload import DDL, Embedded, World, subscriptions
from tocsin.errors import TocsinError
from tocsin.spark.hosting.client import (
    AUTO,
    EXECUTOR_CORES,
    SETTING,
    Hosts,
    StepFailed,
    available_cores,
    host_count,
    host_stats,
    hosts_for,
    wanted_hosts,
)
from tocsin.spark.hosting.process import ProcessId, is_alive, java_above, process_id
from tocsin.spark.hosting.protocol import PeerClosed, receive, send
from tocsin.spark.stages import processors
from tocsin.spark.stages.steps import PipelinePaths, ShardStep
from tocsin.spark.stages.wire import CHANGES, pack
from tocsin.spark.versions.batch import Layout
from tocsin.spark.versions.blocks import as_table
from tocsin.spark.versions.store import Versions

LAYOUT = Layout(tables=2, joins=1, subscriptions=1)
TABLE = "CREATE TABLE t (a BIGINT, b BIGINT, PRIMARY KEY (a))"

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="hosts are found by /proc")


def ended(pids) -> bool:
    return eventually(lambda: not any(process_id(pid) for pid in pids))


def eventually(done, seconds=60.0) -> bool:
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(0.05)
    return bool(done())


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert ended([pid])


@pytest.fixture(scope="module")
def keeper():
    """The process whose hosts these are: they must be gone when it is."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process_id(process.pid)
        process.kill()


@pytest.fixture(scope="module")
def hosts(keeper):
    folder = tempfile.mkdtemp(prefix="hosts-")
    clients = Hosts(2, keeper, folder=folder)
    yield clients
    clients.close()
    pids = [facts["pid"] for facts in clients.stats()]
    os.kill(keeper.pid, signal.SIGKILL)
    assert ended(pids), "hosts outlive their owner"
    assert not clients.directory.exists()
    shutil.rmtree(folder)


class Shard:
    """One table shard with its state, and how often the state was read."""

    def __init__(self, path: Path, client: Hosts, name: str = "1") -> None:
        version = Versions(path / "subscriptions").publish(TABLE, as_table([(1, "SELECT * FROM t")]))
        self.paths = PipelinePaths(str(path / "subscriptions"), str(path / "pins"), LAYOUT, str(path))
        self.tick = pack(pa.table({"seq": pa.array([], pa.int64())}), version=version, seq=-1, micros=0)
        self.client, self.name = client, name
        self.meta, self.blobs, self.reads = None, [], 0

    def step(self, *rows: str, first: int = 0, client: Hosts | None = None):
        """A batch of inserts; the state is as after a commit."""
        changes = [{"table": "t", "op": "insert", "row": row, "seq": first + i} for i, row in enumerate(rows)]
        payload = pack(pa.Table.from_pylist(changes, schema=CHANGES))
        return self.send({"tick": [self.tick], "changes": [payload]}, client)

    def send(self, messages, client: Hosts | None = None):
        done = (client or self.client).step(
            ShardStep(self.paths, "table", self.name, self.meta, messages), self._read
        )
        self.meta, self.blobs = done.meta, [*([] if done.replace else self.blobs), *done.blobs]
        return sorted(message.kind for message in done.messages)

    def _read(self, first: int) -> list[bytes]:
        self.reads += 1
        return self.blobs[first:]


def test_hosts_that_start_together_are_processes_of_their_own(tmp_path, keeper):
    together = Hosts(3, keeper, folder=tmp_path)
    together.start()
    assert eventually(lambda: len({facts["pid"] for facts in together.stats() if "steps" in facts}) == 3)
    pids = {facts["host"]: facts["pid"] for facts in together.stats()}
    together.start()  # they run already
    assert {facts["host"]: facts["pid"] for facts in together.stats()} == pids
    for number, pid in pids.items():
        assert together._connect(number) and together._pids[number] == pid
        assert f"host {number} (process {pid})" in (together.directory / f"{number}.log").read_text()
    kill(pids[1])

    def restarted() -> bool:
        together.start()  # the one that is missing, once its death is noticed
        after = {facts["host"]: facts["pid"] for facts in together.stats()}
        return after.keys() == pids.keys() and after[1] != pids[1]

    assert eventually(restarted)
    after = {facts["host"]: facts["pid"] for facts in together.stats()}
    assert (after[0], after[2]) == (pids[0], pids[2])


def test_steps_are_those_of_one_process_also_if_hosts_are_killed_and_batches_run_twice(tmp_path, hosts):
    """Every shape: by hosts, in this process, and by the embedded engine."""
    worlds = World(3), World(3)
    far = Simulated(tmp_path / "far", DDL, subscriptions(), LAYOUT, hosts=hosts)
    near = Simulated(tmp_path / "near", DDL, subscriptions(), LAYOUT)
    embedded = Embedded(subscriptions())
    for number in range(4):
        changes, same = (world.changes(60) for world in worlds)
        embedded.apply(same)
        near.batch(same)
        if number == 2:
            kill(hosts.stats()[0]["pid"])
        far.batch(changes, crash=number == 3)
    assert far.emitted == near.emitted == embedded.emitted
    assert far.dead == near.dead == []
    facts = hosts.stats()
    assert [f["host"] for f in facts] == [0, 1]
    assert sum(f["engines"] for f in facts) == len({key for states in far.states for key, _ in states.values})
    assert all(f["bytes"] > 1 << 20 and f["steps"] and f["step_seconds"] > 0 for f in facts)
    clear_live_shards()


def test_an_engine_is_used_while_its_token_is_the_state_s_and_else_rebuilt(tmp_path, hosts):
    shard = Shard(tmp_path, hosts)
    assert shard.step('{"a": 1, "b": 1}') == ["deltas", "mark"]
    assert shard.step('{"a": 2, "b": 1}', first=1) == ["deltas", "mark"]
    assert shard.reads == 0
    before = shard.meta, shard.blobs
    shard.step('{"a": 3, "b": 1}', first=2)
    shard.meta, shard.blobs = before  # the task failed after its step, and is tried again
    assert shard.step('{"a": 3, "b": 1}', first=2) == ["deltas", "mark"], "3 is not there yet"
    assert shard.reads == 1
    assert shard.step('{"a": 1, "b": 1}', first=3) == ["dead", "mark"], "1 is there"
    assert shard.reads == 1
    other = Hosts(2, hosts.owner, folder=hosts.directory.parent)  # another worker
    assert shard.step('{"a": 4, "b": 1}', first=4, client=other) == ["deltas", "mark"]
    assert shard.reads == 1
    other.drop(shard.paths, shard.name)
    assert shard.step('{"a": 4, "b": 1}', first=5) == ["dead", "mark"]
    assert shard.reads == 2
    other.close()


def test_a_host_that_dies_twice_in_one_step_is_an_error_and_nothing_is_lost(tmp_path, hosts, monkeypatch):
    shard = Shard(tmp_path, hosts)
    shard.step('{"a": 1, "b": 1}')

    def die(first):
        (pid,) = [f["pid"] for f in hosts.stats() if f["host"] == hosts.number(shard.name)]
        kill(pid)
        return read(first)

    read = shard._read
    hosts.drop(shard.paths, shard.name)
    monkeypatch.setattr(shard, "_read", die)  # half-way: the messages are sent, the blobs requested
    with pytest.raises(
        TocsinError, match=r"the host of shard '1' broke twice.*\n(.*\n)*hint: nothing is lost"
    ):
        shard.step('{"a": 2, "b": 2}', first=2)
    monkeypatch.undo()
    assert shard.step('{"a": 1, "b": 2}', first=2) == ["dead", "mark"]
    assert shard.reads == 3


def test_an_error_of_the_engine_is_the_worker_s_with_its_traceback(tmp_path, hosts):
    shard = Shard(tmp_path, hosts)
    shard.step('{"a": 1, "b": 1}')
    with pytest.raises(StepFailed, match=r"Error: (.*\n)*.*Traceback(.*\n)*.*engines.py"):
        shard.send({"tick": [shard.tick], "changes": [b"\xff" * 16]})
    assert shard.step('{"a": 1, "b": 2}', first=1) == ["dead", "mark"]
    assert shard.reads == 1, "what was touched is not used again"
    hosts.drop(shard.paths, shard.name)
    shard.client = hosts

    def fail(first):
        raise OSError("no state")

    reads, shard._read = shard._read, fail
    with pytest.raises(OSError, match="no state"):  # the worker's own: the conversation is broken off
        shard.step('{"a": 2, "b": 2}', first=2)
    shard._read = reads
    assert shard.step('{"a": 2, "b": 2}', first=2) == ["deltas", "mark"]


def test_several_workers_at_once_start_one_host_and_are_all_answered(tmp_path, keeper):
    with tempfile.TemporaryDirectory(prefix="hosts-") as folder:
        clients = [Hosts(1, keeper, idle=8.0, folder=folder) for _ in range(3)]
        shards = [Shard(tmp_path / str(i), client) for i, client in enumerate(clients)]
        wrong = []

        def work(shard):
            for n in range(5):
                kinds = shard.step(f'{{"a": {n}, "b": 1}}', first=n)
                wrong.extend([kinds] if kinds != ["deltas", "mark"] else [])

        threads = [Thread(target=work, args=(shard,)) for shard in shards]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (facts,) = host_stats(folder)
        assert not wrong
        assert (facts["steps"], facts["made"], facts["rebuilds"], facts["engines"]) == (15, 3, 0, 3)
        directory = clients[0].directory
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        held = [os.readlink(path) for path in Path(f"/proc/{facts['pid']}/fd").iterdir()]
        ours = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.exists()]
        assert not {name for name in held if name.startswith(("socket", "pipe"))}.intersection(ours)
        assert os.getsid(facts["pid"]) != os.getsid(0)
        assert ended([facts["pid"]]), "idle: it ends"
        assert shards[0].step('{"a": 0, "b": 1}', first=9) == ["dead", "mark"], "and comes back"
        assert shards[0].reads == 1
        clients[0].close()
        (facts,) = host_stats(folder)
        assert "no request for 8 s" in (directory / "0.log").read_text()
        kill(facts["pid"])


def test_hosts_end_with_their_owner_and_are_not_the_worker_s(tmp_path):
    """A worker starts a host and dies: the host stays. Then the owner dies: it goes, and its files too."""
    with tempfile.TemporaryDirectory(prefix="hosts-") as folder:
        java = subprocess.Popen(["sleep", "100"])
        program = f"""
import sys
from pathlib import Path
from tests.spark.test_hosting import Hosts, Shard, process_id
shard = Shard(Path({str(tmp_path)!r}), Hosts(1, process_id({java.pid}), folder={folder!r}))
print(shard.step('{{"a": 1, "b": 1}}'))
"""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        out = subprocess.run(
            [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True
        )
        assert out.stdout == b"['deltas', 'mark']\n"
        (facts,) = host_stats(folder)
        assert facts["owner"] == java.pid
        java.kill()  # not waited for yet: one that has ended, though its number is still there
        assert ended([facts["pid"]])
        assert os.listdir(folder) == []
        java.wait()


def test_the_java_process_above_is_found(tmp_path):
    java = tmp_path / "java"
    shutil.copy(shutil.which("sleep"), java)
    with subprocess.Popen([java, "100"]) as process:
        found = process_id(process.pid)
        assert java_above(process.pid) == found
        assert is_alive(found)
        assert not is_alive(ProcessId(found.pid, found.started + 1))
        process.kill()
    assert not is_alive(found)
    assert process_id(found.pid) is None
    assert java_above(1) is None


def test_how_many_hosts_and_where(tmp_path, monkeypatch):
    monkeypatch.setenv(SETTING, "3")
    assert (host_count(), host_count(1), host_count(0)) == (3, 1, 0)
    monkeypatch.setenv(SETTING, "0")
    assert hosts_for(None) is None
    monkeypatch.setenv(SETTING, "many")
    with pytest.raises(TocsinError, match="TOCSIN_HOSTS is 'many'"):
        host_count()
    monkeypatch.delenv(SETTING)
    assert host_count() == 0
    with pytest.raises(TocsinError, match="there cannot be -2 hosts"):
        host_count(-2)
    deep = tmp_path / ("x" * 100)
    assert Hosts(1, None, folder=deep).directory.parent == Path("/tmp")
    client = Hosts(1, None, folder=tmp_path)
    if client.directory.parent == tmp_path:
        client.directory.mkdir(mode=0o755)
        with pytest.raises(TocsinError, match="not a directory of this user alone"):
            client._connect_or_start(0)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with (
        tempfile.TemporaryDirectory(prefix="hosts-") as folder,
        pytest.raises(TocsinError, match="a shard host did not start"),
    ):
        Hosts(1, None, folder=folder)._connect_or_start(0)


def test_frames_of_any_size_and_number():
    here, there = socket.socketpair()
    payloads = [bytes([i % 256]) * (i % 7) for i in range(3000)] + [os.urandom(5 << 20), b""]
    thread = Thread(target=send, args=(here, {"do": "x"}, payloads))
    thread.start()
    assert receive(there) == ({"do": "x"}, payloads)
    thread.join()
    here.close()
    with pytest.raises(PeerClosed):
        receive(there)
    there.close()


def test_a_worker_that_has_hosts_needs_no_engine():
    heavy = "numba", "sqlglot", "tocsin.engine"
    names = f"[name for name in {heavy} if name in sys.modules]"
    program = f"import sys, tocsin.spark.stages.processors; print({names})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True)
    assert out.stdout == b"[]\n"


def test_the_work_goes_on_where_no_host_can_be_had(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(processors, "_without_hosts", set())
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    clear_live_shards()
    world, embedded = World(4), Embedded(subscriptions())
    with tempfile.TemporaryDirectory(prefix="hosts-") as folder:
        client = Hosts(1, None, folder=folder)
        run = Simulated(tmp_path, DDL, subscriptions(), LAYOUT, hosts=client)
        for _ in range(3):
            changes = world.changes(20)
            embedded.apply(changes)
            run.batch(changes)
        client.close()
    assert run.emitted == embedded.emitted
    assert [record.message.split(":")[0] for record in caplog.records] == ["a shard host cannot be had"]


def test_auto_is_sized_by_what_the_executor_may_use(monkeypatch):
    monkeypatch.setenv(EXECUTOR_CORES, "1")
    assert available_cores() == host_count(AUTO) == 1
    monkeypatch.setenv(EXECUTOR_CORES, "1000")
    assert 1 <= available_cores() <= os.cpu_count()
    monkeypatch.setenv(SETTING, "auto")
    assert host_count() == available_cores()
    with pytest.raises(TocsinError, match="there cannot be 'some' hosts"):
        wanted_hosts("some")
