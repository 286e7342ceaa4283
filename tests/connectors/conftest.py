"""One Spark session with connectors for Kafka, Delta and Iceberg; jars come from Maven, by coordinates."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.kafka.broker import CONNECTOR_JARS, NotReachable, broker, fetched
from tocsin.spark import session

DELTA = os.environ.get("TOCSIN_DELTA", "io.delta:delta-spark_4.1_2.13:4.1.0,io.delta:delta-storage:4.1.0")
ICEBERG = os.environ.get("TOCSIN_ICEBERG", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "TOCSIN_TEST_CONNECTORS" not in os.environ and "connectors" in item.nodeid:
            item.add_marker(pytest.mark.skip(reason="run by make test-connectors"))


def tables(folder: object) -> dict[str, str]:
    """Settings: Delta as the catalog of the session, Iceberg as `ice` in a folder."""
    return {
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": f"{folder}/ice",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        jars = [*fetched(CONNECTOR_JARS, alone=True), *fetched(DELTA.split(","), alone=True)]
        jars += fetched([ICEBERG], alone=True)
    except NotReachable as error:
        pytest.skip(f"connectors are not tested: {error}")
    folder = tmp_path_factory.mktemp("tables")
    running = session("tests", **{"spark.jars": ",".join(map(str, jars)), **tables(folder)})
    yield running
    running.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose topics have two partitions."""
    try:
        with broker(tmp_path_factory.mktemp("kafka"), partitions=2) as address:
            yield address
    except NotReachable as error:
        pytest.skip(f"Kafka is not tested: {error}")
