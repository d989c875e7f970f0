"""The jars that the job's image leaves out, held to the installed Spark and to the Dockerfile."""

from __future__ import annotations

import re
from pathlib import Path

from support.spark_jars import LEFT_OUT, home_of_the_image, left_out
from tidegate.jobs.options import spark_home

ROOT = LEFT_OUT.parents[2]

RUNS_WHAT_IT_IS_GIVEN = re.compile(
    r"hive(?!-storage-api)|datanucleus|derby|thrift|libfb303|jdo|repl|jline|scala-compiler|spark-connect_|spark-pipelines|"
    r"spark-yarn|beeline|jython|groovy|bsh|nashorn|rhino"
)


def test_each_of_them_is_one_of_the_installed_spark() -> None:
    """Else a new version of Spark would bring back under a new name what was left out."""
    there = {path.name for path in (spark_home() / "jars").iterdir()}
    assert [name for name in left_out() if name not in there] == []
    assert len(left_out()) == len(set(left_out()))


def test_nothing_else_of_that_kind_is_left(tmp_path: Path) -> None:
    left = {path.name for path in (home_of_the_image(tmp_path) / "jars").iterdir()}
    assert len(left) > 100
    assert sorted(name for name in left if RUNS_WHAT_IT_IS_GIVEN.search(name)) == []


def test_the_image_is_made_without_them() -> None:
    """In the stage from which the image takes Spark, before the connector's jars come in."""
    stages = (ROOT / "Dockerfile").read_text().split("\nFROM ")
    (environment,) = (stage for stage in stages if stage.split("\n")[0].endswith(" AS spark-environment"))
    assert "dev/spark/left-out-jars ./" in environment
    assert "(cd pyspark/jars && grep -v '^#' /src/left-out-jars | xargs rm -r)" in environment
    (image,) = (stage for stage in stages if stage.split("\n")[0].endswith(" AS spark"))
    assert "COPY --from=spark-environment /opt/tidegate/venv /opt/tidegate/venv" in image
    assert "!dev/spark/left-out-jars" in (ROOT / ".dockerignore").read_text().splitlines()
