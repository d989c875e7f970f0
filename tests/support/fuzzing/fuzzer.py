"""A run of hostile input to decoders: what it found, how much it did, what it took of memory.

Inputs that a decoder answers in a way that is new are spoilt further, and those of ``tests/corpus/fuzz`` as well: a
refusal is known by its text with names and numbers taken out, what is read by its shape.
"""

from __future__ import annotations

import gc
import hashlib
import os
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from support.fuzzing.mutation import mutated
from support.fuzzing.target import NoInput, Target

KEPT: Final = Path(__file__).resolve().parents[2] / "corpus" / "fuzz"
SLOW_S: Final = 2.0
"""Of the processor's time, for one input of at most 64 KiB: more is a way to keep a process busy."""

_MOST_KNOWN: Final = 150
_MOST_KEPT_BYTES: Final = 2_048
_ROUND: Final = 50
"""How many inputs a decoder gets before it is the next one's turn."""


class Broken(AssertionError):
    """A decoder raised what it does not say it raises, read what it must not, or took too long."""


@dataclass(frozen=True, slots=True)
class Finding:
    target: str
    data: bytes
    error: str


@dataclass(slots=True)
class Report:
    """What a run came to. ``resident``: (seconds since its beginning, bytes of resident memory), at intervals."""

    inputs: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    resident: list[tuple[float, int]] = field(default_factory=list)

    @property
    def growth(self) -> int:
        """By how many bytes the second half's most is above the first half's, the first tenth left out: what is
        loaded and remembered once is in it."""
        sizes = [size for _, size in self.resident][len(self.resident) // 10 :]
        middle = len(sizes) // 2
        return max(sizes[middle:]) - max(sizes[:middle]) if middle else 0

    def __str__(self) -> str:
        seconds = self.resident[-1][0] if self.resident else 0.0
        sizes = [size / 2**20 for _, size in self.resident] or [0.0]
        lines = [
            f"{sum(self.inputs.values()):,} inputs to {len(self.inputs)} decoders in {seconds:,.0f} s, "
            f"{len(self.findings)} finding(s)",
            f"resident memory: {sizes[0]:.0f} MiB at first, {max(sizes):.0f} at most, {sizes[-1]:.0f} in the end; "
            f"growth of the second half over the first {self.growth / 2**20:.1f} MiB",
            *(f"  {name}: {count:,}" for name, count in sorted(self.inputs.items())),
            *(f"  {found.target}: {found.error}: {found.data[:200]!r}" for found in self.findings),
        ]
        return "\n".join(lines)


def tried(target: Target, data: bytes) -> str | None:
    """How a decoder answers, as a shape; ``None`` for what never reaches it. Raises ``Broken``."""
    began = time.thread_time()
    try:
        read = target.decode(data)
    except NoInput:
        return None
    except target.refuses as refusal:
        answer = f"{type(refusal).__name__}: {_shape(str(refusal))}"
    except Exception as error:
        raise Broken(f"{target.name} raises {type(error).__name__}: {str(error)[:300]}") from error
    else:
        try:
            target.check(read)
        except Exception as error:
            raise Broken(f"{target.name} reads what it must not: {type(error).__name__}: {str(error)[:300]}") from error
        answer = _outline(read)
    if (took_s := time.thread_time() - began) > SLOW_S:
        raise Broken(f"{target.name} takes {took_s:.1f} s for {len(data)} bytes")
    return answer


def kept(target: Target, folder: Path = KEPT) -> list[bytes]:
    """The inputs of the repository's corpus for it."""
    return [path.read_bytes() for path in sorted((folder / target.name).glob("*"))]


class Fuzzer:
    """Goes round the targets. The same seed and number of rounds give the same inputs."""

    def __init__(self, targets: Collection[Target], seed: int, folder: Path = KEPT) -> None:
        self._random = Random(seed)
        self._pools = {target.name: [*target.seeds, *kept(target, folder)] for target in targets}
        self._targets = tuple(targets)
        self._answers: dict[str, set[str]] = {target.name: set() for target in targets}
        self._found: set[tuple[str, str]] = set()
        self.new: dict[str, list[bytes]] = {target.name: [] for target in targets}
        """Inputs that were answered as none was before, small enough to be kept."""

    def run(self, *, seconds: float = 0.0, rounds: int = 0) -> Report:
        """For so long, or for so many rounds. Findings do not end it."""
        report = Report(dict.fromkeys(self._pools, 0))
        began = time.monotonic()
        for target in self._targets:
            for data in self._pools[target.name][:]:
                self._try(target, data, report)
        for number in self._numbers(began, seconds, rounds):
            for target in self._targets:
                for _ in range(_ROUND):
                    pool = self._pools[target.name]
                    self._try(target, mutated(self._random.choice(pool), self._random, pool), report)
            if number % 5 == 0:
                gc.collect()
                report.resident.append((time.monotonic() - began, resident()))
        return report

    @staticmethod
    def _numbers(began: float, seconds: float, rounds: int) -> Iterator[int]:
        number = 0
        while number < rounds or time.monotonic() - began < seconds:
            yield number
            number += 1

    def _try(self, target: Target, data: bytes, report: Report) -> None:
        report.inputs[target.name] += 1
        try:
            answer = tried(target, data)
        except Broken as broken:
            if (key := (target.name, _shape(str(broken)))) not in self._found:
                self._found.add(key)
                report.findings.append(Finding(target.name, data, str(broken)))
            return
        answers = self._answers[target.name]
        if answer is None or answer in answers or len(answers) >= _MOST_KNOWN:
            return
        answers.add(answer)
        if len(data) <= _MOST_KEPT_BYTES and data not in self._pools[target.name]:
            self._pools[target.name].append(data)
            self.new[target.name].append(data)


def keep(target: str, data: bytes, folder: Path = KEPT) -> Path:
    """Put an input into the corpus."""
    path = folder / target / hashlib.sha256(data).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def resident() -> int:
    """Of this process, in bytes (proc(5), statm)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _shape(text: str) -> str:
    """What a message says without what it is about."""
    return re.sub(r"['\"`].*?['\"`]|[0-9]+|[^\x20-\x7e]+", "#", text[:300])[:100]


def _outline(read: Any, depth: int = 2) -> str:
    """Of what types it is, and which members say something."""
    if isinstance(read, (tuple, list, frozenset, set)) and depth:
        return f"[{', '.join(sorted({_outline(each, depth - 1) for each in list(read)[:5]}))}]"
    members = getattr(read, "__dataclass_fields__", None) or getattr(type(read), "model_fields", None)
    if members and depth:
        return f"{type(read).__name__}({', '.join(n for n in members if getattr(read, n, None))})"
    return type(read).__name__
