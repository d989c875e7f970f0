"""A node runs pods that find each other, and goes without a trace, however it ends."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devstack import Node, StackError
from devstack.base_images import debian_archive
from devstack.node import FOLDER, sweep_node
from devstack.node_host import CGROUP
from devstack.processes import RunFolder, eventually

pytestmark = pytest.mark.e2e_cluster

DEV = Path(__file__).resolve().parents[2] / "dev"
IMAGE = "docker.io/library/debian:bookworm-slim"
SERVER = (
    "my $s = IO::Socket::INET->new(LocalPort => 8000, Listen => 5, ReuseAddr => 1) or die; print qq(listening\\n);"
    " while (my $c = $s->accept) { print $c qq(hello\\n); close $c }"
)
PARENT = """
import time
from devstack import Node
node = Node.start()
node.load(Path({image!r}))
node.kubectl("apply", "-f", "-", stdin={pods!r})
node.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
print("up", flush=True)
time.sleep(1000)
"""


def pods(*names: str) -> str:
    """Pods as restricted as can be, each with a Service of its name that says hello."""
    items = []
    for name in names:
        labels = {"app": name}
        restricted = {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        container = {
            "name": "main",
            "image": IMAGE,
            "command": ["perl", "-MIO::Socket::INET", "-e", f"$| = 1; {SERVER}"],
            "securityContext": restricted,
            "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
        }
        pod_security = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
        spec = {"containers": [container], "securityContext": pod_security, "terminationGracePeriodSeconds": 0}
        items.append({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})
        service = {"selector": labels, "ports": [{"port": 80, "targetPort": 8000}]}
        items.append({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service})
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def output(*command: str) -> str:
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=True).stdout


def footprint() -> dict[str, object]:
    """All that a node could leave on the machine, packet counters apart; while nobody else's node is up."""
    # A killed process's, and after that one that is at work.
    sweep_node()
    assert eventually(lambda: not FOLDER.exists(), 600), "the node of another process does not go"
    places = ("/run/containerd", "/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", str(FOLDER))
    names = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")
    return {
        "mounts": Path("/proc/self/mounts").read_text(),
        "links": [link["ifname"] for link in json.loads(output("ip", "-json", "link"))],
        "routes": output("ip", "route"),
        "iptables": re.sub(r"\[\d+:\d+\]|#.*", "", output("iptables-save") + output("ip6tables-save")),
        "nftables": output("nft", "--stateless", "list", "ruleset"),
        "sysctls": [Path("/proc/sys", name).read_text() for name in names],
        "cgroups": sorted(str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{CGROUP}")),
        "places": [place for place in places if Path(place).exists()],
        "processes": sorted(process for process in output("ps", "-eo", "args").splitlines() if str(FOLDER) in process),
    }


def test_pods_run_find_each_other_and_nothing_of_them_is_left() -> None:
    before = footprint()
    with Node.start() as node:
        node.load(debian_archive())
        node.kubectl("apply", "-f", "-", stdin=pods("one", "other"))
        node.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
        assert node.kubectl("logs", "one").strip() == "listening"

        def said(client: str, address: str) -> str:
            ask = f"exec 3<>/dev/tcp/{address}; cat <&3"
            return node.kubectl("exec", client, "--", "bash", "-c", ask).strip()

        # Through a Service to another pod, and to itself
        assert said("one", "other/80") == "hello"
        assert said("one", "one.default.svc.cluster.local/80") == "hello"
        assert node.kubectl("exec", "one", "--", "getent", "hosts", "kubernetes.default").split()[0] == "10.96.0.1"
        with pytest.raises(StackError):
            node.kubectl("exec", "one", "--", "getent", "hosts", "debian.org")
        # A second one in the same process would wait for itself
        with pytest.raises(StackError, match="this process"):
            Node.start()
    assert footprint() == before


def test_what_a_killed_process_left_of_its_node_is_swept() -> None:
    # Given a node with pods whose process is killed
    before = footprint()
    code = PARENT.format(image=str(debian_archive()), pods=pods("one", "other"))
    with subprocess.Popen(
        [sys.executable, "-c", f"from pathlib import Path\n{code}"],
        env={**os.environ, "PYTHONPATH": str(DEV)},
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        parent.send_signal(signal.SIGKILL)
    assert eventually(lambda: RunFolder(FOLDER).is_abandoned(), 90)
    # When the next one comes
    sweep_node()
    # Then nothing is left
    assert footprint() == before
