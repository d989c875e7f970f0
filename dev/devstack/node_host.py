"""What a node changes on the machine outside its folder, and how all of it is undone.

A bridge with the node's address, sysctls, control groups, mounts, kube-proxy's tables, and a few folders whose places
are compiled into containerd and the kubelet. What was there before is written down first (``host.json`` in the node's
folder), so that `restore` undoes it whoever calls it and however the node ended. Both need root.
"""

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from devstack import prerequisites
from devstack.errors import StackError
from devstack.processes import eventually

BRIDGE = "tidegate0"
ADDRESS = "10.88.0.1"
POD_NETWORK = "10.88.0.0/16"
CGROUP = "tidegate-node"

_CGROUPS = Path("/sys/fs/cgroup")
# kubelet sets the first ones at its start, the bridge plugin the last.
_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
)
_FIXED_FOLDERS = tuple(
    Path(path) for path in ("/run/containerd", "/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/opt/cni")
)
_PROXY_TABLES = (("ip", "kube-proxy"), ("ip6", "kube-proxy"))


def prepare(folder: Path) -> None:
    """Write down what is there, make bridge and control groups. Raises `StackError` where others are in the way."""
    _refuse_others()
    before = {
        "sysctls": {name: text for name in _SYSCTLS if (text := _read_sysctl(name)) is not None},
        "absent": [str(path) for path in _FIXED_FOLDERS if not path.exists()],
    }
    record = folder / "host.json"
    unfinished = record.with_suffix(".new")
    unfinished.write_text(json.dumps(before, indent=1))
    unfinished.replace(record)
    for hierarchy in _hierarchies():
        (hierarchy / CGROUP).mkdir(exist_ok=True)
    _run("ip", "link", "add", BRIDGE, "type", "bridge")
    _run("ip", "address", "add", f"{ADDRESS}/{ipaddress.ip_network(POD_NETWORK).prefixlen}", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    _write_sysctl("net/ipv4/ip_forward", "1")


def restore(folder: Path, containerd_socket: Path) -> None:
    """End the containers and undo `prepare` and what the daemons did since; may be called again. They must have ended.

    Raises `StackError` naming what would not go; the folder must not be deleted then, since mounts may lead out of it.
    """
    record = folder / "host.json"
    if not record.exists():
        return  # nothing was changed yet
    before = json.loads(record.read_text())
    left: list[str] = []
    if not eventually(lambda: not _kill_containers(containerd_socket), 20):
        left.append("processes of containers")
    if not eventually(lambda: not _unmount_below(folder), 10):
        left.append(f"mounts below {folder}")
    for family, table in _PROXY_TABLES:
        _attempt("nft", "delete", "table", family, table)
    # The kernel removes a pod's interface some time after the last process of its network namespace.
    if not eventually(_remove_bridge, 15):
        left.append(f"the bridge {BRIDGE}")
    if not eventually(_remove_cgroups, 10):
        left.append(f"control groups named {CGROUP}")
    for name, text in before["sysctls"].items():
        if _read_sysctl(name) != text:
            _write_sysctl(name, text)
    for path in before["absent"]:
        shutil.rmtree(path, ignore_errors=True)
    if left:
        raise StackError(f"the node's tear-down left {', '.join(left)}")


def _refuse_others() -> None:
    network = ipaddress.ip_network(POD_NETWORK)
    for link in json.loads(_run("ip", "-json", "-4", "address", "show")):
        for address in link["addr_info"]:
            if ipaddress.ip_address(address["local"]) in network:
                raise StackError(
                    f"{link['ifname']} has an address in {POD_NETWORK}, which the node needs: take that network down"
                )
    for family, table in _PROXY_TABLES:
        if _attempt("nft", "list", "table", family, table):
            raise StackError(f"there is a table {table} of nftables already: another Kubernetes node runs here")


def _kill_containers(containerd_socket: Path) -> bool:
    """SIGKILL to every process in our control groups and to their shims; whether there were any."""
    found = set(_shims(containerd_socket))
    for group in _cgroups():
        with contextlib.suppress(OSError):
            found |= {int(line) for line in (group / "cgroup.procs").read_text().split()}
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def _shims(containerd_socket: Path) -> Iterator[int]:
    """The processes between containerd and its containers, which outlive it: each is told the socket."""
    address = os.fsencode(containerd_socket)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if address in words and b"containerd-shim" in words[0]:
                    yield int(folder.name)


def mounts_below(folder: Path) -> list[str]:
    """Mount points in `folder`, the deepest first (proc_pid_mountinfo(5): the fifth field, blanks in octal)."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    decoded = [point.encode().decode("unicode_escape") for point in points]
    return sorted((point for point in decoded if point.startswith(f"{folder}/")), reverse=True)


def _unmount_below(folder: Path) -> bool:
    if points := mounts_below(folder):
        _attempt("umount", "--lazy", "--", *points)
    return bool(mounts_below(folder))


def _remove_bridge() -> bool:
    if not Path("/sys/class/net", BRIDGE).exists():
        return True
    if any(Path("/sys/class/net", BRIDGE, "brif").iterdir()):
        return False
    return _attempt("ip", "link", "delete", BRIDGE)


def _remove_cgroups() -> bool:
    for group in _cgroups():
        with contextlib.suppress(OSError):
            group.rmdir()
    return not list(_cgroups())


def _cgroups() -> Iterator[Path]:
    """Our control groups in every hierarchy, children first."""
    for hierarchy in _hierarchies():
        for folder, _, _ in os.walk(hierarchy / CGROUP, topdown=False):
            yield Path(folder)


def _hierarchies() -> list[Path]:
    """Where control groups are mounted: once (version 2), or for each controller (version 1)."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    mounted = {line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if " cgroup" in line}
    return [Path(point) for point in sorted(mounted)]


def _read_sysctl(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None


def _write_sysctl(name: str, text: str) -> None:
    with contextlib.suppress(OSError):  # a container's own /proc may be read-only; the daemons say so if they mind
        Path("/proc/sys", name).write_text(text)


def _run(*command: str) -> str:
    path = prerequisites.program(command[0]) or command[0]
    done = subprocess.run([path, *command[1:]], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise StackError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


def _attempt(*command: str) -> bool:
    try:
        _run(*command)
    except StackError:
        return False
    return True
