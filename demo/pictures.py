"""``make pictures``: the recording of the demo and screenshots of the page, from one real run of the demo.

Needs what the demo needs, and Debian's Chromium for the screenshots.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

from demo.cluster import Cluster
from demo.stage import API_VERSION, CONNECTION, NAMESPACE
from devstack import ApiServer, KafkaCluster
from devstack.processes import eventually
from support.chromium import Browser, chromium

_ROOT: Final = Path(__file__).resolve().parents[1]
_PICTURES: Final = _ROOT / "docs" / "pictures"
_RESET: Final = "replay-18-may"
_DEMO_S: Final = 600.0
_WIDTH, _HEIGHT = 1180, 860


def main() -> int:
    if chromium() is None:
        print("chromium is not installed: dev/install-node-prerequisites installs it", file=sys.stderr)
        return 2
    with ExitStack() as ends:
        kafka = ends.enter_context(closing(KafkaCluster.start()))
        server = ends.enter_context(closing(ApiServer.start()))
        environment = {**os.environ, "TIDEGATE_BOOTSTRAP": kafka.bootstrap, "KUBECONFIG": str(server.kubeconfig)}
        recorded = [sys.executable, "-m", "demo", "--record", str(_PICTURES / "demo.svg")]
        demo = ends.enter_context(_running(recorded, environment))
        with closing(Cluster(server.kubeconfig)) as cluster:
            if not eventually(lambda: demo.poll() is not None or _is_connected(cluster), _DEMO_S):
                raise TimeoutError("the demo has not made its KafkaConnection")
        served = [sys.executable, "-m", "tidegate.cli.main", "ui", "--no-browser", "--namespace", NAMESPACE]
        served += ["--connection", CONNECTION, "--bootstrap-server", kafka.bootstrap]
        page = ends.enter_context(_running(served, environment, stdout=subprocess.PIPE))
        address = page.stdout.readline().decode().strip() if page.stdout is not None else ""
        with Browser() as browser:
            _take(browser, address)
        return demo.wait(_DEMO_S)


def _is_connected(cluster: Cluster) -> bool:
    kind = "KafkaConnection"
    return cluster.is_served(API_VERSION, kind) and cluster.get(API_VERSION, kind, CONNECTION, NAMESPACE) is not None


@contextmanager
def _running(
    command: Sequence[str], environment: Mapping[str, str], **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Interrupted at the end, as by Ctrl-C."""
    process = subprocess.Popen(command, cwd=_ROOT, env=dict(environment), **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def _take(browser: Browser, address: str) -> None:
    browser.look(width=_WIDTH, height=_HEIGHT)
    browser.open(address)
    browser.until(f"document.body?.innerText.includes({_RESET!r})", "the reset is listed", _DEMO_S)
    browser.run(f"location.hash = '#/reset/{NAMESPACE}/{_RESET}'")
    browser.until("document.querySelector('h1')?.innerText.includes('Succeeded')", "it has succeeded", _DEMO_S)
    browser.until("document.querySelectorAll('table').length > 0", "its partitions are shown")
    for name, dark in (("page", False), ("page-dark", True)):
        browser.look(dark=dark, width=_WIDTH, height=_HEIGHT)
        browser.screenshot(_PICTURES / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
