"""The tools that must be on the machine: found, or named in one line each with what to install."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from devstack.errors import MissingPrerequisiteError

JAVA_AT_LEAST = (17,)
MAVEN_AT_LEAST = (3, 6, 3)
GO_AT_LEAST = (1, 26, 0)
# From 1.21 on, go fetches the toolchain that a go.mod asks for by itself, unless GOTOOLCHAIN=local forbids it.
GO_THAT_UPGRADES_ITSELF = (1, 21, 0)


@dataclass(frozen=True, slots=True)
class Tool:
    """A program found on the machine, in a version that will do."""

    path: str
    version: tuple[int, ...]


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def _version(text: str, pattern: str) -> tuple[int, ...]:
    found = re.search(pattern, text)
    return tuple(int(part) for part in found.group(1).split(".") if part.isdigit()) if found else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _checked(
    name: str, path: str | None, version: tuple[int, ...], at_least: tuple[int, ...], purpose: str, install: str
) -> Tool:
    wanted = f"{name} >= {_dotted(at_least)}"
    if path is None or not version:
        raise MissingPrerequisiteError(f"missing: {wanted} ({purpose}); install it: {install}")
    if version < at_least:
        raise MissingPrerequisiteError(
            f"too old: {path} is {name} {_dotted(version)}, needed is {wanted} ({purpose}); install it: {install}"
        )
    return Tool(path, version)


def linux() -> None:
    """Refuse other systems: the stack's processes are watched through Linux's pidfd and /proc."""
    if sys.platform != "linux":
        raise MissingPrerequisiteError(f"missing: Linux (this is {sys.platform}); run it in a Linux VM or container")


def _java() -> str | None:
    """Of ``JAVA_HOME``, or else of ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    in_home = Path(home, "bin", "java") if home else None
    return str(in_home) if in_home and in_home.is_file() else shutil.which("java")


def java() -> Tool:
    """Java of ``JAVA_HOME``, or else of ``PATH``."""
    path = _java()
    version = _version(_output([path, "-version"]), r'version "(\d+(?:\.\d+)*)') if path else ()
    return _checked(
        "Java", path, version, JAVA_AT_LEAST, "runs Kafka and Spark", "e.g. apt-get install openjdk-17-jdk-headless"
    )


def java_compiler() -> Tool:
    """The compiler beside that Java, as Maven wants it, or else of ``PATH``: a Java runtime alone has none."""
    runtime = _java()
    beside = Path(runtime).resolve().with_name("javac") if runtime else None
    path = str(beside) if beside and beside.is_file() else shutil.which("javac")
    version = _version(_output([path, "-version"]), r"javac (\d+(?:\.\d+)*)") if path else ()
    install = "e.g. apt-get install openjdk-17-jdk-headless"
    return _checked("JDK", path, version, JAVA_AT_LEAST, "its javac compiles the Java agent", install)


def maven() -> Tool:
    """Maven, which fetches the jars of Kafka and of the Spark connector."""
    path = shutil.which("mvn")
    version = _version(_output([path, "-v"]), r"Apache Maven (\d+(?:\.\d+)*)") if path else ()
    return _checked("Maven", path, version, MAVEN_AT_LEAST, "fetches Kafka's jars", "e.g. apt-get install maven")


def go() -> Tool:
    """Go, which builds etcd and kube-apiserver."""
    path = shutil.which("go")
    version = _version(_output([path, "version"]), r"go(\d+(?:\.\d+)*)") if path else ()
    fixed = path is None or _output([path, "env", "GOTOOLCHAIN"]).strip() == "local"
    at_least = GO_AT_LEAST if fixed else GO_THAT_UPGRADES_ITSELF
    return _checked("Go", path, version, at_least, "builds etcd and kube-apiserver", "see https://go.dev/doc/install")


def openssl() -> Tool:
    """OpenSSL, which makes the certificates of one run."""
    path = shutil.which("openssl")
    version = _version(_output([path, "version"]), r"(?:OpenSSL|LibreSSL) (\d+(?:\.\d+)*)") if path else ()
    return _checked("OpenSSL", path, version, (1, 1), "makes test certificates", "e.g. apt-get install openssl")


def missing() -> list[str]:
    """One line for each prerequisite that is not there; empty when all are."""
    lines: list[str] = []
    checks: tuple[Callable[[], object], ...] = (linux, java, java_compiler, maven, go, openssl)
    for check in checks:
        try:
            check()
        except MissingPrerequisiteError as error:
            lines.append(str(error))
    return lines


CNI_PLUGINS = Path("/usr/lib/cni")

# What a node and its images need besides: program, Debian package, what for.
_NODE_PROGRAMS = (
    ("containerd", "containerd", "runs containers"),
    ("ctr", "containerd", "loads images"),
    ("runc", "runc", "runs containers"),
    ("nft", "nftables", "carries Services' addresses"),
    ("ip", "iproute2", "makes the pods' bridge"),
    ("umount", "mount", "takes the node down"),
    ("kubectl", "kubernetes-client", "speaks to the node as a user does"),
    ("buildah", "buildah", "builds images without a daemon"),
    ("debootstrap", "debootstrap", "makes base images without a registry"),
)


def program(name: str) -> str | None:
    """Where a program lies, also in the administrator's folders, which not everybody has on ``PATH``."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


def missing_for_node() -> list[str]:
    """One line for each thing that a node lacks on this machine, and one with the command that installs them."""
    lines: list[str] = []
    if os.geteuid() != 0:
        lines.append("missing: root (a node mounts, makes network interfaces and control groups); run it with sudo")
    packages: list[str] = []
    for name, package, purpose in _NODE_PROGRAMS:
        if program(name) is None:
            lines.append(f"missing: {name} ({purpose})")
            packages.append(package)
    if not all((CNI_PLUGINS / plugin).is_file() for plugin in ("bridge", "host-local", "loopback")):
        lines.append(f"missing: the CNI plugins in {CNI_PLUGINS} (connect pods)")
        packages.append("containernetworking-plugins")
    if packages:
        wanted = " ".join(dict.fromkeys(packages))
        lines.append(
            f"install them: dev/install-node-prerequisites, or apt-get install --no-install-recommends {wanted}"
        )
    return lines


def node() -> None:
    """Raise `MissingPrerequisiteError`, a line for each thing a node lacks on this machine."""
    linux()
    if lines := missing_for_node():
        raise MissingPrerequisiteError("\n".join(lines))


def uv() -> Path:
    """uv, which installs the Python packages: of ``PATH``, or else what ``make setup`` has fetched."""
    cache = Path(os.environ.get("TIDEGATE_CACHE") or Path.home() / ".cache" / "tidegate").expanduser()
    found = shutil.which("uv") or next((str(path) for path in sorted(cache.glob("uv-*/bin/uv"))), None)
    if found is None:
        raise MissingPrerequisiteError("missing: uv (installs Python packages); `make setup` fetches it")
    return Path(found)
