"""A Kafka broker for a test: the published jars, fetched by Maven into a cache, in a process of its own.

    <cache>/tocsin/kafka/<coordinates, hashed>/*.jar

Nothing of it is in the repository, and where the jars come from is left to Maven's own settings.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tocsin.lab.chaos.cluster import HOST, Process

SCALA = "2.13"
KAFKA = os.environ.get("TOCSIN_KAFKA", "4.1.0")
CONNECTOR = pyspark.__version__  # it goes with exactly this Spark
TOKENS = os.environ.get("TOCSIN_KAFKA_TOKENS", "4.0.0")  # any of Spark 4: it is used for Kerberos alone
BROKER_JARS = [f"org.apache.kafka:kafka_{SCALA}:{KAFKA}", "org.slf4j:slf4j-simple:1.7.36"]
# By name, without what they ask for: that is Spark itself, whose pom names repositories of its own.
CONNECTOR_JARS = [
    f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{CONNECTOR}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_{SCALA}:{TOKENS}",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
]


class NotReachable(Exception):
    """Maven, or what it should fetch."""


def fetched(coordinates: Sequence[str], *, alone: bool) -> list[Path]:
    """The jars of some coordinates and, unless `alone`, of what they need; from the cache if it has them."""
    name = f"{zlib.crc32(repr((list(coordinates), alone)).encode()):08x}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "tocsin" / "kafka"
    folder = cache / name
    if not folder.is_dir():
        maven = shutil.which("mvn")
        if maven is None:
            raise NotReachable("there is no Maven (mvn) on the path")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            Path(work, "pom.xml").write_text(_pom(coordinates, alone))
            command = [maven, "-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime"]
            command += [f"-DoutputDirectory={work}/jars"]
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=600)
            if done.returncode:
                why = [line for line in done.stdout.splitlines() if "ERROR" in line]
                raise NotReachable(f"Maven cannot fetch {', '.join(coordinates)}: {_gist(why)}")
            os.rename(Path(work, "jars"), folder)
    return sorted(folder.glob("*.jar"))


def _gist(lines: Sequence[str]) -> str:
    """What is missing, without the address at which it was looked for."""
    return (lines[0] if lines else "no reason given").split(" in ")[0].split(" from/to ")[0][:400]


def _pom(coordinates: Sequence[str], alone: bool) -> str:
    nothing = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    wanted = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>".format(
            *name.split(":"), nothing if alone else ""
        )
        for name in coordinates
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tocsin</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{wanted}</dependencies></project>"
    )


@contextmanager
def broker(folder: Path, partitions: int = 1) -> Iterator[str]:
    """A broker that is its own controller (KRaft), with so many partitions per topic; gives its address."""
    jars = ":".join(map(str, fetched(BROKER_JARS, alone=False)))
    folder.mkdir(parents=True, exist_ok=True)
    port, control = _free_ports(2)
    config = folder / "server.properties"
    config.write_text(
        f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{HOST}:{control}
listeners=PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{control}
advertised.listeners=PLAINTEXT://{HOST}:{port}
controller.listener.names=CONTROLLER
log.dirs={folder / "data"}
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
    )
    formatting = ["kafka.tools.StorageTool", "format", "-t", "dG9jc2luLWthZmthLXRlc3Q", "-c", str(config)]
    made = Process.java("the formatting of Kafka's folder", formatting, folder / "format.log", jars=jars)
    try:
        made.wait_for(r"Formatting .*")
        while made.is_alive():
            made.pause()
    finally:
        made.kill()
    server = Process.java("Kafka", ["kafka.Kafka", str(config)], folder / "kafka.log", jars=jars)
    try:
        server.wait_for("Kafka Server started")
        yield f"{HOST}:{port}"
    finally:
        server.kill()


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
