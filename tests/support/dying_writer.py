"""A stored run, carried out by a process that kills itself just before or just after a call of its transactions.

python dying_writer.py FOLDER NAME CALL before|after

``CALL``: ``copy``, ``send``, ``commit``; ``send2`` is the second ``send``, that of the run's marker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tidegate.clock import SystemClock
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.transaction import KafkaTransaction
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.runs import job

CALLS = ("copy", "send", "send2", "commit")


def execute_and_die(folder: Path, name: str, call: str, when: str) -> None:
    """Returns when the process is dead. Raises ``AssertionError`` where it has ended in another way."""
    command = [sys.executable, __file__, str(folder), name, call, when]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    died = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if died.returncode != -signal.SIGKILL:
        raise AssertionError(f"the writer ended with {died.returncode}: {died.stderr[-2000:]}")


def main(folder: str, name: str, call: str, when: str) -> None:
    store = DirectoryRunStore(Path(folder), name)
    method = call.removesuffix("2")
    real = getattr(KafkaTransaction, method)
    calls = 0

    def dying(transaction: KafkaTransaction, *args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        if calls < (2 if call != method else 1):
            real(transaction, *args, **kwargs)
            return
        if when == "after":
            real(transaction, *args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    with (
        closing(KafkaClient(store.load().request.connection)) as kafka,
        patch.object(KafkaTransaction, method, dying),
    ):
        job.execute(store, kafka, SystemClock())


if __name__ == "__main__":
    main(*sys.argv[1:])
