"""Hosts that share no disk: a master, two workers and a driver, each in a mount namespace of its own.

They share the installed programs, loopback, and an object store. Workers and drivers are killed; the Delta
table has every delta exactly once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import boto3
import pytest

from tests.connectors.conftest import DELTA
from tests.kafka.broker import NotReachable, fetched
from tests.spark.workload import Embedded, World, emitted, subscriptions
from tocsin.lab.chaos.cluster import running
from tocsin.lab.chaos.object_store import BUCKET, object_store

pytestmark = pytest.mark.slow
HADOOP = os.environ.get("TOCSIN_HADOOP_AWS", "org.apache.hadoop:hadoop-aws:3.4.2")
ALONE = 'mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /var/tmp && cd /tmp && exec "$@"'
WITHIN = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ALONE, "sh"]
DRIVER = Path(__file__).with_name("hosts_apart.py")
FILES = 5
PATIENCE = 1200.0  # seconds: batches on S3 take half a minute on a busy machine


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*WITHIN, "true"], capture_output=True, check=False).returncode == 0


def test_exactly_once_into_delta_though_hosts_share_no_disk_and_are_killed(tmp_path):
    if not can_unshare():
        pytest.skip("mount namespaces need unshare, and root")
    try:
        jars = [*fetched([HADOOP], alone=False), *fetched(DELTA.split(","), alone=True)]
    except NotReachable as error:
        pytest.skip(f"jars cannot be had: {error}")
    (tmp_path / "mine").touch()
    seen = subprocess.run([*WITHIN, "ls", str(tmp_path)], capture_output=True, check=False)
    assert seen.returncode != 0, "the hosts see this folder"
    classpath = ":".join(map(str, jars))
    world, embedded = World(3), Embedded(subscriptions())
    with (
        object_store(tmp_path / "s3") as s3,
        running(workers=2, cores=1, logs=tmp_path / "logs", within=WITHIN) as cluster,
    ):
        client = boto3.client("s3", endpoint_url=s3.endpoint)
        for number in range(FILES):
            changes = world.changes(25)
            embedded.apply(changes)
            body = "".join(json.dumps(change) + "\n" for change in changes)
            client.put_object(Bucket=BUCKET, Key=f"in/{number:04d}.json", Body=body)
            time.sleep(1.1)  # S3 has times in seconds, and Spark reads files in their order

        def commits() -> int:
            found = client.list_objects_v2(Bucket=BUCKET, Prefix="checkpoint/commits/").get("Contents", [])
            return sum(one["Key"].rpartition("/")[2].isdigit() for one in found)

        def driver(what: str, master: str) -> subprocess.Popen[str]:
            command = [*WITHIN, sys.executable, str(DRIVER), what, master, classpath, s3.endpoint]
            paths = [str(Path.cwd()), os.environ.get("PYTHONPATH")]
            env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
            pipe = subprocess.PIPE
            return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env, process_group=0)

        def until(done: int, process: subprocess.Popen[str]) -> None:
            deadline = time.monotonic() + PATIENCE
            while commits() < done:
                assert process.poll() is None, process.communicate()[1][-3000:]
                assert time.monotonic() < deadline, f"{commits()} batches, and not {done}"
                time.sleep(0.2)

        first = driver("run", cluster.url)
        try:
            until(1, first)
            cluster.workers[0].kill()
            assert cluster.replace_dead() == 1
            until(2, first)
        finally:
            os.killpg(first.pid, 9)
            first.communicate()
        second = driver("run", cluster.url)
        try:
            until(3, second)
            cluster.workers[0].kill()
            assert cluster.replace_dead() == 1
            _, wrong = second.communicate(timeout=PATIENCE)
            assert second.returncode == 0, wrong[-3000:]
        finally:
            if second.poll() is None:
                os.killpg(second.pid, 9)
        text, wrong = driver("read", "local[1]").communicate(timeout=PATIENCE)
        assert text, wrong[-3000:]
        rows = json.loads(text.splitlines()[-1])
        assert emitted(rows) == embedded.emitted
        keys = [
            one["Key"] for one in client.list_objects_v2(Bucket=BUCKET, Prefix="state/").get("Contents", [])
        ]
        assert not [key for key in keys if "dead_letters" in key]
