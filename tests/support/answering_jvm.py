"""A Java program that answers each line of its standard input by one of its standard output: one JVM for many calls."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Self


class AnsweringJvm:
    """The program, as long as the ``with`` block lasts."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def __enter__(self) -> Self:
        self._jvm = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._jvm.stdin is not None
        self._jvm.stdin.close()
        try:
            self._jvm.wait(20)
        finally:
            self._jvm.kill()

    def ask(self, line: str) -> str:
        """Questions follow one another."""
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.write(line + "\n")
        self._jvm.stdin.flush()
        answer = self._jvm.stdout.readline()
        assert answer, f"the JVM ended with {self._jvm.wait(20)}"
        return answer
