"""Kafka's command line tools, many calls in one JVM: to start one takes longer than what most calls do."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Self

from devstack import kafka_libs, tool_command
from support.clients.java import java_classes


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program ended with and said."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """Its lines as cells, in any order: the tool's order of groups is that of a hash map."""
        return sorted(line.split() for line in self.out.splitlines() if line.strip())


class KafkaTools:
    """The JVM (``java/KafkaTools.java``), as long as the ``with`` block lasts. A call is as one of Kafka's scripts."""

    def __enter__(self) -> Self:
        command = tool_command("KafkaTools")
        command[command.index("-cp") + 1] = f"{java_classes()}:{kafka_libs()}/*"
        self._jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._jvm.stdin is not None
        self._jvm.stdin.close()
        try:
            self._jvm.wait(20)
        finally:
            self._jvm.kill()

    def call(self, main_class: str, *arguments: str) -> Answer:
        """One call; calls follow one another."""
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.write(json.dumps([main_class, *arguments]) + "\n")
        self._jvm.stdin.flush()
        line = self._jvm.stdout.readline()
        assert line, f"the JVM of Kafka's tools ended with {self._jvm.wait(20)}"
        return Answer(**json.loads(line))
