"""Which of Spark's jars the job's image has (``dev/spark/left-out-jars``)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidegate.jobs.options import spark_home

LEFT_OUT: Final = Path(__file__).resolve().parents[2] / "dev" / "spark" / "left-out-jars"


def left_out() -> list[str]:
    """Names in ``pyspark/jars``, read as the Dockerfile reads them."""
    return [name for line in LEFT_OUT.read_text().splitlines() if not line.startswith("#") for name in line.split()]


def home_of_the_image(folder: Path) -> Path:
    """Fill ``folder`` with a SPARK_HOME that lacks those jars: links into the installed one. Returns it."""
    for path in spark_home().iterdir():
        if path.name != "jars":
            (folder / path.name).symlink_to(path)
    (folder / "jars").mkdir()
    for path in (spark_home() / "jars").iterdir():
        if path.name not in left_out():
            (folder / "jars" / path.name).symlink_to(path)
    return folder
