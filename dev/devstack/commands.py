"""The commands behind ``dev/stack.py``: build the tools, bring a broker and an API server up, take them down.

What `up` started is written to ``<cache>/stack.json``. Standard output carries only the ``export`` lines, so that
``eval "$(dev/stack.py up)"`` works; everything said to a person goes to standard error.
"""

import argparse
import contextlib
import fcntl
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from devstack import preparation, prerequisites, tools
from devstack.apiserver import ApiServer
from devstack.errors import MissingPrerequisiteError, StackError
from devstack.java_agent import java_agent
from devstack.kafka import KafkaCluster
from devstack.node import Node, take_down
from devstack.processes import RunFolder, sweep
from devstack.release import Order, make_release
from devstack.sbom import write_sboms
from devstack.toolcache import DEV, Tool, say, toolcache
from devstack.version import version_of, write_version

CRDS = DEV.parent / "crds"
# kube-apiserver and etcd end within a second, a broker within a few.
GRACE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class StackState:
    """What `up` left running."""

    bootstrap: str
    kubeconfig: str
    brokers: int
    kafka_run: str
    apiserver_run: str

    @classmethod
    def read(cls) -> Self | None:
        """The state that the last `up` wrote; None when there is none that can be read."""
        try:
            return cls(**json.loads(_state_file().read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self) -> None:
        """Write it; the file names no secrets, only where they are."""
        _state_file().write_text(json.dumps(asdict(self), indent=1) + "\n")

    @property
    def runs(self) -> tuple[RunFolder, RunFolder]:
        """The run folders of broker and API server."""
        return RunFolder(Path(self.kafka_run)), RunFolder(Path(self.apiserver_run))

    @property
    def complete(self) -> bool:
        """Whether everything still runs: a guard and a program for each broker, etcd and kube-apiserver."""
        kafka, apiserver = self.runs
        return len(kafka.processes()) == 2 * self.brokers and len(apiserver.processes()) == 4

    @property
    def exports(self) -> str:
        """Lines for the shell."""
        values = {"TIDEGATE_BOOTSTRAP": self.bootstrap, "KUBECONFIG": self.kubeconfig}
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def main(arguments: Sequence[str]) -> int:
    """Run one command; 0 when it succeeded, 1 when the stack failed, 2 when a prerequisite is missing."""
    parser = argparse.ArgumentParser(prog="dev/stack.py", description="Kafka and a Kubernetes API server on 127.0.0.1.")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="fetch and build the tools that are not in the cache yet")
    build.add_argument("--cluster", action="store_true", help="also what a node needs")
    prepare = commands.add_parser(
        "prepare", help="say what a command needs, and make what is not there, Python packages too"
    )
    prepare.add_argument("what", choices=tuple(preparation.COMMANDS))
    up = commands.add_parser("up", help="start broker and API server, install crds/, print the exports")
    up.add_argument("--brokers", type=int, default=1, metavar="N", help="number of brokers (default 1)")
    commands.add_parser("down", help="stop what `up` started, and what crashed runs left")
    commands.add_parser("status", help="say what runs; exit code 1 when it is not complete")
    commands.add_parser("env", help="print the exports of the running stack")
    commands.add_parser("sbom", help="write a bill of materials of each image into build/sbom (root)")
    commands.add_parser("agent-java", help="build, check and test the Java agent; say where its jars are")
    version = commands.add_parser("version", help="print the tree's version, or write another one everywhere")
    version.add_argument("version", nargs="?", metavar="X.Y.Z")
    release = commands.add_parser("release", help="build a release of the commit into dist/, and try it from there")
    release.add_argument("version", metavar="X.Y.Z")
    release.add_argument("--repository", metavar="URL", help="where its source and files are published")
    release.add_argument("--registry", metavar="HOST/PATH", help="where its images are published")
    release.add_argument("--untried", action="store_true", help="do not install it and play the tutorial on it")
    node = commands.add_parser("node", help="a whole cluster of one node on this machine, with pods (root)")
    node.add_argument("action", choices=("up", "down", "status"))
    options = parser.parse_args(arguments)
    try:
        match options.command:
            case "build":
                return _build(tools.NODE, node=True) if options.cluster else _build(tools.TEST)
            case "prepare":
                preparation.prepare(preparation.COMMANDS[options.what])
                return 0
            case "sbom":
                write_sboms(DEV.parent / "build" / "sbom")
                return 0
            case "agent-java":
                sys.stdout.write(f"{java_agent().folder()}\n")
                return 0
            case "version":
                return _version(options.version)
            case "release":
                order = Order(options.version, options.repository, options.registry, not options.untried)
                make_release(order, DEV.parent)
                return 0
            case "node":
                return _node(options.action)
            case "up":
                return _up(options.brokers)
            case "down":
                return _down()
            case "status":
                return _status()
            case _:
                return _env()
    except MissingPrerequisiteError as error:
        say(str(error))
        return 2
    except StackError as error:
        say(str(error))
        return 1


def _build(wanted: tuple[Tool, ...], *, node: bool = False) -> int:
    lines = prerequisites.missing()
    if node:
        lines += prerequisites.missing_for_node()
    if lines:
        for line in lines:
            say(line)
        return 2
    tools.build(wanted)
    return 0


def _version(version: str | None) -> int:
    if version is None:
        sys.stdout.write(f"{version_of(DEV.parent)}\n")
        return 0
    for file in write_version(DEV.parent, version, datetime.now(UTC).date()):
        say(f"wrote {file}")
    return 0


def _node(action: str) -> int:
    match action:
        case "up":
            if code := _build(tools.NODE, node=True):
                return code
            node = Node.attach() or Node.start(detached=True)
            say(f"the node is up, logs in {node.logs}")
            sys.stdout.write(f"export KUBECONFIG={shlex.quote(str(node.kubeconfig))}\n")
            return 0
        case "down":
            say("stopped" if take_down() else "no node was up")
            return 0
        case _:
            attached = Node.attach()
            say(f"the node is up, logs in {attached.logs}" if attached else "no node is up")
            return 0 if attached else 1


def _up(brokers: int) -> int:
    if code := _build(tools.UP):
        return code
    with _locked():
        state = StackState.read()
        if state and not (state.complete and state.brokers == brokers):
            _end(state)
            state = None
        sweep()
        if state is None:
            state = _started(brokers)
            state.write()
        server = ApiServer.attach(Path(state.kubeconfig))
        for crd in crd_files():
            for name in server.apply(crd):
                say(f"applied {name}")
        say(f"Kafka at {state.bootstrap}, API server by {state.kubeconfig}")
        sys.stdout.write(state.exports)
    return 0


def crd_files() -> tuple[Path, ...]:
    """The project's own CRDs; other files beside them (a kustomization) are not for the server."""
    return tuple(path for path in sorted(CRDS.glob("*.yaml")) if "kind: CustomResourceDefinition" in path.read_text())


def _started(brokers: int) -> StackState:
    cluster = KafkaCluster.start(brokers, detached=True)
    try:
        server = ApiServer.start(detached=True)
    except BaseException:
        cluster.close(failed=True)
        raise
    return StackState(
        bootstrap=cluster.bootstrap,
        kubeconfig=str(server.kubeconfig),
        brokers=brokers,
        kafka_run=str(cluster.folder),
        apiserver_run=str(server.folder),
    )


def _down() -> int:
    with _locked():
        state = StackState.read()
        if state:
            _end(state)
        swept = sweep()
    say("stopped" if state else "nothing was up")
    if swept:
        say(f"cleaned up after {len(swept)} crashed run(s)")
    return 0


def _end(state: StackState) -> None:
    for run in state.runs:
        # A record is trusted only inside the folder where runs lie, with its owner file: its pids are checked there.
        if (run.path / "owner").exists():
            run.end_processes(GRACE_SECONDS)
            run.remove()
    _state_file().unlink(missing_ok=True)


def _status() -> int:
    state = StackState.read()
    if state is None:
        say("nothing is up")
        return 1
    kafka, apiserver = state.runs
    for name, run, expected in (("Kafka", kafka, 2 * state.brokers), ("API server", apiserver, 4)):
        running = len(run.processes())
        say(f"{name}: {'running' if running == expected else f'{running} of {expected} processes'}, logs in {run.logs}")
    return 0 if state.complete else 1


def _env() -> int:
    state = StackState.read()
    if state is None or not state.complete:
        say("nothing is up; `make up` starts it")
        return 1
    sys.stdout.write(state.exports)
    return 0


def _state_file() -> Path:
    return toolcache().root / "stack.json"


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    locks = toolcache().root / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / "stack.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
