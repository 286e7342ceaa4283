"""One Spark session for all tests here that ask for it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tocsin.spark import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    running = session("tests")
    yield running
    running.stop()
