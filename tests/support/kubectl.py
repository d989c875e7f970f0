"""kubectl, as a person runs it."""

import subprocess
from typing import Any

import yaml

from devstack import ApiServer


class Kubectl:
    """kubectl in one namespace."""

    def __init__(self, apiserver: ApiServer, namespace: str) -> None:
        self._command = ("kubectl", f"--kubeconfig={apiserver.kubeconfig}", f"--namespace={namespace}")

    def __call__(self, *arguments: str, given: Any = None, fails: bool = False) -> str:
        """What it prints; with ``fails`` why it refuses."""
        text = None if given is None else yaml.safe_dump(given)
        done = subprocess.run([*self._command, *arguments], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout
