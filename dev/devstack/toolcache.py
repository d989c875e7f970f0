"""Jars and binaries, made once and kept outside the tree.

Each artifact lies in ``<cache>/tools/<name>-<key>``, where the key is a hash of everything it is made from, so that a
changed ``pom.xml`` or ``go.mod`` makes a new one. It is built in a temporary folder under a file lock and renamed when
complete: a reader never sees half an artifact, and two builds at once make it once.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from devstack import prerequisites
from devstack.checksums import verify_jars
from devstack.errors import StackError

DEV = Path(__file__).resolve().parent.parent

KAFKA_VERSION = "4.3.1"
OLD_KAFKA_VERSION = "3.9.2"
KUBERNETES_VERSION = "v1.36.3"
ETCD_VERSION = "v3.7.3"
COREDNS_VERSION = "v1.15.0"
HELM_VERSION = "v4.3.1"
KUBE_SCORE_VERSION = "v1.20.0"
SYFT_VERSION = "v1.57.1"
SPARK_OPERATOR_VERSION = "v2.5.1"
SPARK_OPERATOR_MODULE = "github.com/kubeflow/spark-operator/v2"

# The plugin copies a pom's dependencies into a folder; pinned, so that the same pom gives the same jars.
MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

# Charts compare the server's version (semverCompare), so an API server without these flags fails them.
_COMPONENT_BASE = "k8s.io/component-base/version"
KUBERNETES_LDFLAGS = " ".join(
    [
        "-s -w",
        f"-X {_COMPONENT_BASE}.gitVersion={KUBERNETES_VERSION}",
        f"-X {_COMPONENT_BASE}.gitMajor={KUBERNETES_VERSION[1:].split('.')[0]}",
        f"-X {_COMPONENT_BASE}.gitMinor={KUBERNETES_VERSION[1:].split('.')[1]}",
        f"-X {_COMPONENT_BASE}.gitTreeState=clean",
        f"-X {_COMPONENT_BASE}.gitCommit={KUBERNETES_VERSION}",
        f"-X {_COMPONENT_BASE}.buildDate=2026-01-01T00:00:00Z",
    ]
)


def _last_lines(log: str) -> str:
    return "\n".join(log.splitlines()[-8:])


@dataclass(frozen=True, slots=True)
class Build:
    """What one build may use: the folder it fills and the log its commands write to."""

    folder: Path
    log: Path

    def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        excerpt: Callable[[str], str] = _last_lines,
    ) -> str:
        """Run `command`, its errors to the log, and return its output. Raises `StackError` with an `excerpt` of the
        log, by default its end."""
        with self.log.open("a") as log:
            log.write("$ " + " ".join(command) + "\n")
            log.flush()
            done = subprocess.run(
                command,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                check=False,
            )
            log.write(done.stdout)
        if done.returncode != 0:
            shown = excerpt(self.log.read_text(errors="replace"))
            raise StackError(f"`{' '.join(command[:3])} ...` failed; its log: {self.log}\n{shown}")
        return done.stdout


class Toolcache:
    """The cache folder: ``TIDEGATE_CACHE``, or ``~/.cache/tidegate``."""

    __slots__ = ("root",)

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, name: str, made_from: Sequence[Path | str]) -> Path | None:
        """The folder of the artifact `name`, if it was made from these."""
        folder = self.root / "tools" / f"{name}-{_key(made_from)}"
        return folder if folder.is_dir() else None

    def artifact(
        self, name: str, made_from: Sequence[Path | str], build: Callable[[Build], None], *, label: str, first_time: str
    ) -> Path:
        """The folder of the artifact `name`, built if it is not there.

        `made_from` (files by content, strings as they are) is its version. `label` and `first_time` are shown while it
        is built. Raises `StackError` when the build fails.
        """
        final = self.root / "tools" / f"{name}-{_key(made_from)}"
        if final.is_dir():
            return final
        for folder in ("tools", "locks", "logs", "tmp"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        with _locked(self.root / "locks" / f"{name}.lock", label):
            if final.is_dir():
                return final
            log = self.root / "logs" / f"build-{name}.log"
            log.write_text("")
            for abandoned in (self.root / "tmp").glob(f"{name}-*"):
                shutil.rmtree(abandoned, ignore_errors=True)  # a build that was killed; we hold its lock
            unfinished = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.root / "tmp"))
            try:
                with progress(f"building {label}", f"{first_time} the first time"):
                    build(Build(unfinished, log))
                unfinished.chmod(0o755)
                unfinished.rename(final)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        return final


def toolcache() -> Toolcache:
    """The machine's cache, by ``TIDEGATE_CACHE`` or in the home folder."""
    named = os.environ.get("TIDEGATE_CACHE")
    return Toolcache(Path(named).expanduser().resolve() if named else Path.home() / ".cache" / "tidegate")


@dataclass(frozen=True, slots=True)
class Tool:
    """One of the stack's tools: an artifact that Maven, Go or uv makes, the first time in `seconds` (least, most).

    `seconds` are those of a machine with two cores.
    """

    name: str
    label: str
    made_by: Literal["Maven", "Go", "uv"]
    seconds: tuple[int, int]
    made_from: tuple[Path | str, ...]
    build: Callable[[Build], None]

    @property
    def is_there(self) -> bool:
        """Whether it was made already."""
        return toolcache().find(self.name, self.made_from) is not None

    def folder(self) -> Path:
        """Its folder; made now where it is not there. Raises `StackError` and `MissingPrerequisiteError`."""
        first_time = time_span(*self.seconds)
        return toolcache().artifact(self.name, self.made_from, self.build, label=self.label, first_time=first_time)

    def binary(self) -> Path:
        """The program of that name in its folder."""
        return self.folder() / self.name


def maven_jars(name: str, label: str, pom: Path, sums: str, seconds: tuple[int, int], *definitions: str) -> Tool:
    """``sums``: the list of the jars' checksums, beside the pom. ``definitions``: properties of the pom that are to be
    others, as ``kafka.version=3.9.2``."""
    listed = pom.with_name(sums)

    def build(build: Build) -> None:
        prerequisites.java()
        mvn = prerequisites.maven().path
        # Maven writes its resolution state next to the pom it was given; a copy keeps the tree clean.
        copied = build.folder / "pom.xml"
        shutil.copyfile(pom, copied)
        given = [f"-D{definition}" for definition in definitions]
        options = ["-q", "-B", "-ntp", "-C", "-Dstyle.color=never", "-DincludeScope=runtime", *given]
        build.run([mvn, *options, "-f", str(copied), MAVEN_COPY, f"-DoutputDirectory={build.folder}"])
        verify_jars(build.folder, listed)

    return Tool(name, label, "Maven", seconds, (pom, listed, MAVEN_COPY, *definitions), build)


# The compiler's time goes to garbage collection and debug information, which the linker drops anyway.
_GO_ENV = {
    "CGO_ENABLED": "0",
    "GOWORK": "off",
    "GOFLAGS": "-mod=readonly -buildvcs=false -gcflags=all=-dwarf=false",
    "GOGC": "400",
}


def go_build(build: Build, source: Path, name: str, package: str, *, ldflags: str = "-s -w") -> None:
    """Build a package of the module in ``source`` as the program ``name``. Raises as `Tool.folder`."""
    go = prerequisites.go().path
    output = str(build.folder / name)
    build.run([go, "build", "-trimpath", "-ldflags", ldflags, "-o", output, package], cwd=source, env=_GO_ENV)


def _go(
    name: str,
    version: str,
    package: str,
    seconds: tuple[int, int],
    *,
    ldflags: str = "-s -w",
    module: str | None = None,
) -> Tool:
    folder = DEV / "go" / (module or name)

    def build(build: Build) -> None:
        go_build(build, folder, name, package, ldflags=ldflags)

    sources = (*sorted(folder.glob("go.*")), *sorted(folder.glob("*.go")))
    made_from: tuple[Path | str, ...] = (*sources, package, ldflags, platform.machine())
    return Tool(name, f"{name} {version}".strip(), "Go", seconds, made_from, build)


def _kubernetes(name: str, seconds: tuple[int, int]) -> Tool:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return _go(name, KUBERNETES_VERSION, package, seconds, ldflags=KUBERNETES_LDFLAGS, module="kubernetes")


def _copy_spark_operator_module(build: Build) -> None:
    go = prerequisites.go().path
    answer = json.loads(
        build.run([go, "mod", "download", "-json", SPARK_OPERATOR_MODULE], cwd=_SPARK_OPERATOR, env=_GO_ENV)
    )
    for part in ("config/crd/bases", "charts", "entrypoint.sh"):
        source, target = Path(answer["Dir"], part), build.folder / part
        if not source.exists():
            raise StackError(f"{SPARK_OPERATOR_MODULE} has no {part}")
        target.parent.mkdir(parents=True, exist_ok=True)
        # Contents alone: a module's files are read-only.
        if source.is_dir():
            shutil.copytree(source, target, copy_function=shutil.copyfile)
            for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
                folder.chmod(0o755)
        else:
            shutil.copyfile(source, target)


_SPARK_OPERATOR = DEV / "go" / "spark-operator"

KAFKA = maven_jars(
    f"kafka-{KAFKA_VERSION}",
    f"Kafka {KAFKA_VERSION} (jars)",
    DEV / "kafka" / "pom.xml",
    f"jars-{KAFKA_VERSION}.sha256",
    (10, 60),
)
SPARK_CONNECTOR = maven_jars(
    "spark-kafka-connector", "Spark-Kafka connector (jars)", DEV / "spark" / "pom.xml", "jars.sha256", (5, 30)
)
ETCD = _go("etcd", ETCD_VERSION, "go.etcd.io/etcd/server/v3", (30, 60))
KUBE_APISERVER = _kubernetes("kube-apiserver", (180, 240))
KUBE_CONTROLLER_MANAGER = _kubernetes("kube-controller-manager", (60, 120))
KUBE_SCHEDULER = _kubernetes("kube-scheduler", (10, 60))
KUBELET = _kubernetes("kubelet", (20, 60))
KUBE_PROXY = _kubernetes("kube-proxy", (10, 30))
COREDNS = _go("coredns", COREDNS_VERSION, ".", (40, 80))
PAUSE = _go("pause", "", ".", (1, 5))
HELM = _go(
    "helm",
    HELM_VERSION,
    "helm.sh/helm/v4/cmd/helm",
    (60, 120),
    ldflags=f"-s -w -X helm.sh/helm/v4/internal/version.version={HELM_VERSION}",
)
KUBE_SCORE = _go("kube-score", KUBE_SCORE_VERSION, "github.com/zegl/kube-score/cmd/kube-score", (10, 30))
SYFT = _go("syft", SYFT_VERSION, "github.com/anchore/syft/cmd/syft", (60, 150))
SPARK_OPERATOR = _go("spark-operator", SPARK_OPERATOR_VERSION, f"{SPARK_OPERATOR_MODULE}/cmd/operator", (60, 120))
SPARK_OPERATOR_FILES = Tool(
    "spark-operator-module",
    "Spark operator's chart and CRDs",
    "Go",
    (1, 10),
    (_SPARK_OPERATOR / "go.mod", _SPARK_OPERATOR / "go.sum"),
    _copy_spark_operator_module,
)


def kafka_broker(version: str) -> Tool:
    """The jars of a broker of another release, without the command-line tools."""
    pom = DEV / "kafka" / "broker" / "pom.xml"
    label, sums = f"Kafka {version} (jars)", f"jars-{version}.sha256"
    return maven_jars(f"kafka-{version}", label, pom, sums, (10, 60), f"kafka.version={version}")


def kafka_connect(version: str = KAFKA_VERSION) -> Tool:
    """The jars of a Connect worker with MirrorMaker and the file connectors: made by what starts one."""
    pom = DEV / "kafka" / "connect" / "pom.xml"
    label, sums = f"Kafka Connect {version} (jars)", f"jars-{version}.sha256"
    return maven_jars(f"kafka-connect-{version}", label, pom, sums, (5, 60), f"kafka.version={version}")


def kafka_libs(version: str = KAFKA_VERSION) -> Path:
    """The folder of Kafka's jars: ``java -cp '<folder>/*' kafka.Kafka``; of ``KAFKA_VERSION`` also those of
    ConsumerGroupCommand and ConsumerPerformance."""
    return (KAFKA if version == KAFKA_VERSION else kafka_broker(version)).folder()


def spark_jars() -> tuple[Path, ...]:
    """The Spark-Kafka connector's jars, for ``spark.jars`` or the image: without what pyspark has itself."""
    return tuple(sorted(SPARK_CONNECTOR.folder().glob("*.jar")))


def etcd_binary() -> Path:
    """etcd, which holds the API server's objects."""
    return ETCD.binary()


def kube_apiserver_binary() -> Path:
    """The real kube-apiserver."""
    return KUBE_APISERVER.binary()


def kube_controller_manager_binary() -> Path:
    """The controllers of Deployments, Jobs, service accounts and the rest."""
    return KUBE_CONTROLLER_MANAGER.binary()


def kube_scheduler_binary() -> Path:
    """The scheduler."""
    return KUBE_SCHEDULER.binary()


def kubelet_binary() -> Path:
    """The kubelet, which runs a node's pods."""
    return KUBELET.binary()


def kube_proxy_binary() -> Path:
    """kube-proxy, which leads Services' addresses to pods."""
    return KUBE_PROXY.binary()


def coredns_binary() -> Path:
    """CoreDNS with the plugins that `dev/go/coredns/main.go` names."""
    return COREDNS.binary()


def pause_binary() -> Path:
    """The first process of each pod, static."""
    return PAUSE.binary()


def helm_binary() -> Path:
    """Helm, which renders and installs the chart."""
    return HELM.binary()


def kube_score_binary() -> Path:
    """kube-score, which finds fault with manifests that the API server takes."""
    return KUBE_SCORE.binary()


def spark_operator_module() -> Path:
    """What the Kubeflow Spark operator's Go module holds beside its code: CRDs, chart, entrypoint."""
    return SPARK_OPERATOR_FILES.folder()


def spark_operator_crds() -> tuple[Path, ...]:
    """The Kubeflow Spark operator's CRDs, out of the operator's Go module."""
    return tuple(sorted((spark_operator_module() / "config/crd/bases").glob("*.yaml")))


def spark_operator_binary() -> Path:
    """The Kubeflow Spark operator."""
    return SPARK_OPERATOR.binary()


def time_span(least_s: int, most_s: int) -> str:
    """Two durations as people say them: ``10 to 30 s``, ``30 s to 1 min``, ``3 to 4 min``; minutes are rounded up."""
    if most_s < 60:
        return f"{least_s} to {most_s} s"
    most = math.ceil(most_s / 60)
    if least_s < 60:
        return f"{least_s} s to {most} min"
    least = math.ceil(least_s / 60)
    return f"{least} to {most} min" if least < most else f"{most} min"


def _key(made_from: Sequence[Path | str]) -> str:
    digest = hashlib.sha256()
    for part in made_from:
        content = part.read_bytes() if isinstance(part, Path) else part.encode()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:12]


@contextlib.contextmanager
def _locked(path: Path, label: str) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that builds {label}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def progress(what: str, takes: str) -> Iterator[None]:
    """Say that it begins, from time to time that it goes on, and how it ended."""
    started = time.monotonic()
    # A line that is written over and over is for one build at a time.
    interactive = sys.stderr.isatty() and threading.current_thread() is threading.main_thread()
    done = threading.Event()

    def show() -> None:
        while not done.wait(1 if interactive else 30):
            line = f"{what} ... {time.monotonic() - started:.0f} s ({takes})"
            if interactive:
                print(f"\r{line}", end="", file=sys.stderr, flush=True)
            else:
                say(line)

    say(f"{what} ({takes})")
    shower = threading.Thread(target=show, daemon=True)
    shower.start()
    outcome = "failed after"
    try:
        yield
        outcome = "done in"
    finally:
        done.set()
        shower.join()
        if interactive:
            print("\r\033[K", end="", file=sys.stderr)
        say(f"{what}: {outcome} {time.monotonic() - started:.0f} s")


def say(line: str) -> None:
    """Tell the person at the terminal; standard output stays free for what a command answers."""
    print(line, file=sys.stderr, flush=True)
