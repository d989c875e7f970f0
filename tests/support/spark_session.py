"""The fixture ``spark``: one session for all tests of a process, since a process can have no second one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from devstack import spark_jars
from support.needs import starts
from support.spark_jars import home_of_the_image


@pytest.fixture(scope="session")
@starts("spark")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Spark as the job's image has it: without the jars that are left out there."""
    from tidegate.spark.session import local_session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_HOME", str(home_of_the_image(tmp_path_factory.mktemp("spark-home"))))
        session = local_session("local[2]", jars=spark_jars())
    yield session
    session.stop()
