"""``worker.py`` whose librdkafka members may have a setting ``crash.at``: a step of their gates at which they die.

Steps are the core's (``PAUSE``, ``POSITION``, …), of partition 0 once it has been open; ``OPENED`` is the ack of a gate
that is open again. The process dies as the step's effect is handed out; all it says is ``{"e": "error", …: "crash"}``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka  # noqa: F401 -- forked processes have it then

from tidegate_agent.core import Core
from tidegate_agent.partition_state import Stage, Step

CRASHED = 77
WORKER = Path(__file__).resolve().parents[2] / "support" / "clients" / "worker.py"


def crash_at(wanted: str, tell: Callable[[], None]) -> None:
    """Have this process's cores hand out effects until the wanted one is due."""
    plain = Core._effect
    armed = False

    def effect(self: Core, step: Step, partitions: tuple[Any, ...]) -> Any:
        nonlocal armed
        for partition in partitions:
            if partition.partition != 0:
                continue
            is_open = step is Step.ACK and self.stage(partition) is Stage.OPEN
            if armed and wanted == ("OPENED" if is_open else step.name):
                tell()
                os._exit(CRASHED)
            armed = armed or is_open
        return plain(self, step, partitions)

    Core._effect = effect  # type: ignore[method-assign]


def main() -> int:
    spec = importlib.util.spec_from_file_location("worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    worker: Any = importlib.util.module_from_spec(spec)
    sys.modules["worker"] = worker
    spec.loader.exec_module(worker)
    consume = worker.consume_librdkafka

    def consume_until_crash(member: Any, job: Any, report: Any, stopping: Any) -> None:
        step = member.config.pop("crash.at", None)
        if step is not None:
            crash_at(step, lambda: report.event(member.name, "error", error="crash"))
        consume(member, job, report, stopping)

    worker.consume_librdkafka = consume_until_crash
    code: int = worker.main(sys.argv[1])
    return code


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    os._exit(exit_code)
