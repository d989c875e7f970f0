"""The demo ends well."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
MINUTES_4: Final = 240.0


def test_the_demo_ends_with_a_verdict() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "demo", "--plain"],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k not in ("KUBECONFIG", "TIDEGATE_BOOTSTRAP")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        try:
            # Twice what it may take: the tests share the machine.
            told, wrong = demo.communicate(timeout=2 * MINUTES_4)
        except subprocess.TimeoutExpired:
            demo.send_signal(signal.SIGINT)
            told, wrong = demo.communicate(timeout=60)
            pytest.fail(f"the demo does not end:\n{told}\n{wrong}")

    assert demo.returncode == 0, f"{told}\n{wrong}"
    assert "the checker's verdict: all is well" in told
    assert "WRONG" not in told
    for said in (
        r"ok +nothing lost: each of [\d,]+ records",
        r"ok +replay-18-may: partitions went on exactly from their targets",
        r"ok +undo-replay-18-may: partitions went on exactly from their targets",
        r"ok +first-500-after-noon: partitions went on exactly from their targets \(\d at [\d,]+\)",
        r"""zgrep '" 500 ' access_log.gz finds the same request; partition \d has it at \d+: .*18/May/2015:15:05:42""",
        r"ok +no consumer was restarted",
        r"replay-18-may: strategy Barrier; standstill for its consumers: [\d.]+ s",
        r"reset replay-18-may: Planning .* by Spark job",
        r"ok +partition 3 of fraud-watch, with a Java consumer, was paused at offset [\d,]+",
        r"ok +partition 5 of fraud-watch, with a Python consumer, was paused at offset [\d,]+",
        r"ok +its 6 other partitions went on meanwhile",
        r"ok +partition 3 was reset while paused \(strategy Gated\): when it was resumed, it went on exactly at [\d,]+",
        r"ok +partition 5 was reset while paused \(strategy Gated\): when it was resumed, it went on exactly at [\d,]+",
        r"ok +fraud-watch: no rebalance",
        r"ok +fraud-watch: nothing lost, nothing else read again",
    ):
        assert re.search(said, told), f"not said: {said}\n{told}"
