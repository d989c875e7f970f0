"""What a command imports before it asks the API server for the first time: most of the time until then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]

KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me, namespace: shop}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: none}}]
"""

FIRST_REQUEST: Final = """
import os, sys
from tidegate.cli.main import main
from tidegate.kube import api
original = api.default_api_client

def watched(context=None):
    client = original(context)

    def call_api(*_, **__):
        print("\\n".join(sorted(sys.modules)), flush=True)
        os._exit(0)

    client.call_api = call_api
    return client

api.default_api_client = watched
main(sys.argv[1:])
"""

NOT_YET: Final = ("asyncio", "confluent_kafka", "kafka", "kopf", "rich", "websocket", "kubernetes.client.api")


def imported(tmp_path: Path, *arguments: str) -> set[str]:
    """The modules that are there when the first request is sent."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    environment = os.environ | {"KUBECONFIG": str(tmp_path / "kubeconfig"), "PYTHONPATH": str(ROOT / "operator")}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_REQUEST, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment,
    )
    found = set(done.stdout.split())
    assert "kubernetes.client.api_client" in found, done.stdout + done.stderr
    return found


@pytest.mark.parametrize("command", ["why payments", "status", "pause payments -c prod", "resume poison"])
def test_no_other_client_is_imported_before_the_first_request(command: str, tmp_path: Path) -> None:
    found = imported(tmp_path, *command.split())

    assert not [name for name in NOT_YET if name in found]


@pytest.mark.parametrize("command", ["pause payments -c prod", "pause a b -c prod", "resume poison"])
def test_the_models_are_imported_while_the_operator_works(command: str, tmp_path: Path) -> None:
    assert "tidegate.resources.base" not in imported(tmp_path, *command.split())


def test_what_is_deferred_of_the_official_client_is_there_once_it_is_asked_for() -> None:
    script = (
        "import sys\n"
        "from tidegate.kube.deferred import defer_unused\n"
        "defer_unused()\n"
        "import kubernetes\n"
        "assert 'websocket' not in sys.modules\n"
        "assert callable(kubernetes.stream.stream)\n"
        "assert 'websocket' in sys.modules\n"
        "from kubernetes.watch import Watch\n"
        "from kubernetes.dynamic import DynamicClient\n"
        "print(Watch.__name__, DynamicClient.__name__)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "operator")}

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=environment, check=False
    )

    assert done.stdout == "Watch DynamicClient\n", done.stderr
