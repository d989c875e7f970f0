"""kubectl, as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from support.operator_process import Body

SLOW_S: Final = 180.0
"""For what pods have to come up first."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Against one cluster; in one namespace, where that is given. Every call raises ``AssertionError`` with what it
    printed where it did not end as it was to."""

    kubeconfig: Path
    namespace: str = ""

    def __call__(self, *arguments: str, given: Any = None, fails: bool = False, timeout_s: float = SLOW_S) -> str:
        """What it prints; with ``fails`` why it refuses. ``given``: an object for its standard input, or a text."""
        within = (f"--namespace={self.namespace}",) if self.namespace else ()
        done = subprocess.run(
            ["kubectl", *within, *arguments],
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig)},
            input=given if given is None or isinstance(given, str) else yaml.safe_dump(given),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert (done.returncode != 0) == fails, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        self("apply", "--server-side", "-f", "-", given=yaml.safe_dump_all(list(manifests)))

    def get(self, kind: str, *arguments: str) -> Body:
        """One object, or a list of a kind (``items``)."""
        found: Body = json.loads(self("get", kind, *arguments, "-o", "json"))
        return found

    def pods(self, namespace: str, selector: str) -> list[Body]:
        """Those that are not on their way out."""
        found = self.get("pods", "-n", namespace, "-l", selector)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def kill_pod(self, namespace: str, name: str) -> None:
        """As a node that fails: at once, and nobody is asked."""
        self("delete", "pod", "-n", namespace, name, "--force", "--grace-period=0", "--wait=false")
