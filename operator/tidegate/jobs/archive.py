"""The archive of loaded classes that lets Spark's JVM start faster (JEP 350, dynamic class-data sharing).

A job of a few seconds spends most of them loading and verifying the same ten thousand classes. The archive is made
once, by one training job, for one Java and one Spark; an image bakes it in. A JVM to which it does not fit ignores it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.options import local_options, spark_home, with_java_options
from tidegate.jobs.settings import SparkSettings

TIMEOUT_S = 600


def make_archive(archive: Path) -> None:
    """Run the training job and write the archive (about 170 MB), whole or not at all. Raises ``RunnerFailure``."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidegate-archive-", dir=archive.parent) as folder:
        made = Path(folder) / "classes.jsa"
        options = with_java_options(local_options(), f"-XX:ArchiveClassesAtExit={made}")
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]"]
        for key, value in options.items():
            command += ["--conf", f"{key}={value}"]
        command += [str(SparkSettings().templates / "jobs" / "warm_up.py"), str(Path(folder) / "plans")]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode != 0 or not made.exists():
            raise RunnerFailure(f"no archive was made: {done.stdout[-1000:]}{done.stderr[-2000:]}")
        made.replace(archive)


def main(arguments: Sequence[str]) -> int:
    """``python -m tidegate.jobs.archive FILE``."""
    if len(arguments) != 1:
        sys.stderr.write("name the file to write\n")
        return 2
    make_archive(Path(arguments[0]).absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
