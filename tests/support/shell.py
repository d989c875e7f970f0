"""`tidegate`, as a person runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Shell:
    """Runs `tidegate` with these variables, and with `always` before all other arguments."""

    def __init__(self, environment: Mapping[str, str], *always: str) -> None:
        self._environment = os.environ | {"PYTHONPATH": str(ROOT / "operator")} | environment
        self._always = always

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tidegate.cli.main", *self._always, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Both outputs."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=180)
        assert process.returncode == code, out + err
        return out + err
