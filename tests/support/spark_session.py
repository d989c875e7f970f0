"""The fixture ``spark``: one session for all tests of a process, since a process can have no second one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.needs import starts


@pytest.fixture(scope="session")
@starts("spark")
def spark() -> Iterator[Any]:
    from devstack import spark_jars
    from tidegate.spark.session import local_session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = local_session("local[2]", jars=spark_jars())
    yield session
    session.stop()
