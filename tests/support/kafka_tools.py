"""Kafka's command line tools, many calls in one JVM: to start one takes longer than what most calls do."""

from __future__ import annotations

import json
from dataclasses import dataclass

from devstack import kafka_libs, tool_command
from support.answering_jvm import AnsweringJvm
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


class KafkaTools(AnsweringJvm):
    """The JVM (``java/KafkaTools.java``). A call is as one of Kafka's scripts."""

    def __init__(self) -> None:
        command = tool_command("KafkaTools")
        command[command.index("-cp") + 1] = f"{java_classes()}:{kafka_libs()}/*"
        super().__init__(command)

    def call(self, main_class: str, *arguments: str) -> Answer:
        """One call; calls follow one another."""
        return Answer(**json.loads(self.ask(json.dumps([main_class, *arguments]))))
