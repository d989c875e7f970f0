"""`tidegate`, as a person runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Shell:
    """Runs `tidegate` as a person does."""

    def __init__(self, kubeconfig: Path) -> None:
        self._environment = os.environ | {"PYTHONPATH": str(ROOT / "operator"), "KUBECONFIG": str(kubeconfig)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tidegate.cli.main", *arguments],
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
