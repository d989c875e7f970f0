"""Jars and binaries, made once and kept outside the tree.

Each artifact lies in ``<cache>/tools/<name>-<key>``, where the key is a hash of everything it is made from, so that a
changed ``pom.xml`` or ``go.mod`` makes a new one. It is built in a temporary folder under a file lock and renamed when
complete: a reader never sees half an artifact, and two builds at once make it once.
"""

import contextlib
import fcntl
import hashlib
import json
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

from devstack import prerequisites
from devstack.errors import StackError

DEV = Path(__file__).resolve().parent.parent

KAFKA_VERSION = "4.3.1"
KUBERNETES_VERSION = "v1.36.3"
ETCD_VERSION = "v3.7.3"
COREDNS_VERSION = "v1.15.0"
HELM_VERSION = "v4.3.1"
KUBE_SCORE_VERSION = "v1.20.0"
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


@dataclass(frozen=True, slots=True)
class Build:
    """What one build may use: the folder it fills and the log its commands write to."""

    folder: Path
    log: Path

    def run(self, command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
        """Run `command`, its errors to the log, and return its output. Raises `StackError` with the log's end."""
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
            last = "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])
            raise StackError(f"`{' '.join(command[:3])} ...` failed; its log: {self.log}\n{last}")
        return done.stdout


class Toolcache:
    """The cache folder: ``TIDEGATE_CACHE``, or ``~/.cache/tidegate``."""

    __slots__ = ("root",)

    def __init__(self, root: Path) -> None:
        self.root = root

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
                with _progress(f"building {label}", first_time):
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


def kafka_libs() -> Path:
    """The folder of Kafka's jars: ``java -cp '<folder>/*' kafka.Kafka``, ConsumerGroupCommand, ConsumerPerformance."""
    pom = DEV / "kafka" / "pom.xml"
    return toolcache().artifact(
        f"kafka-{KAFKA_VERSION}",
        [pom, MAVEN_COPY],
        lambda build: _copy_jars(build, pom),
        label=f"Kafka {KAFKA_VERSION} (jars)",
        first_time="10 s to 1 min",
    )


def spark_jars() -> tuple[Path, ...]:
    """The Spark-Kafka connector's jars, for ``spark.jars`` or the image: without what pyspark has itself."""
    pom = DEV / "spark" / "pom.xml"
    folder = toolcache().artifact(
        "spark-kafka-connector",
        [pom, MAVEN_COPY],
        lambda build: _copy_jars(build, pom),
        label="Spark-Kafka connector (jars)",
        first_time="5 to 30 s",
    )
    return tuple(sorted(folder.glob("*.jar")))


def etcd_binary() -> Path:
    """etcd, which holds the API server's objects."""
    return _go_binary("etcd", ETCD_VERSION, "go.etcd.io/etcd/server/v3", "-s -w", first_time="about 30 s to 1 min")


def kube_apiserver_binary() -> Path:
    """The real kube-apiserver."""
    return _kubernetes_binary("kube-apiserver", "about 3 to 4 min")


def kube_controller_manager_binary() -> Path:
    """The controllers of Deployments, Jobs, service accounts and the rest."""
    return _kubernetes_binary("kube-controller-manager", "about 1 to 2 min")


def kube_scheduler_binary() -> Path:
    """The scheduler."""
    return _kubernetes_binary("kube-scheduler", "10 s to 1 min")


def kubelet_binary() -> Path:
    """The kubelet, which runs a node's pods."""
    return _kubernetes_binary("kubelet", "20 s to 1 min")


def kube_proxy_binary() -> Path:
    """kube-proxy, which leads Services' addresses to pods."""
    return _kubernetes_binary("kube-proxy", "10 to 30 s")


def coredns_binary() -> Path:
    """CoreDNS with the plugins that `dev/go/coredns/main.go` names."""
    return _go_binary("coredns", COREDNS_VERSION, ".", "-s -w", first_time="about 1 min")


def pause_binary() -> Path:
    """The first process of each pod, static."""
    return _go_binary("pause", "", ".", "-s -w", first_time="a few seconds")


def helm_binary() -> Path:
    """Helm, which renders and installs the chart."""
    return _go_binary(
        "helm",
        HELM_VERSION,
        "helm.sh/helm/v4/cmd/helm",
        f"-s -w -X helm.sh/helm/v4/internal/version.version={HELM_VERSION}",
        first_time="about 1 to 2 min",
    )


def kube_score_binary() -> Path:
    """kube-score, which finds fault with manifests that the API server takes."""
    package = "github.com/zegl/kube-score/cmd/kube-score"
    return _go_binary("kube-score", KUBE_SCORE_VERSION, package, "-s -w", first_time="about 10 to 30 s")


def spark_operator_module() -> Path:
    """What the Kubeflow Spark operator's Go module holds beside its code: CRDs, chart, entrypoint."""
    module = DEV / "go" / "spark-operator"

    def build(build: Build) -> None:
        go = prerequisites.go().path
        answer = json.loads(build.run([go, "mod", "download", "-json", SPARK_OPERATOR_MODULE], cwd=module, env=_GO_ENV))
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

    return toolcache().artifact(
        "spark-operator-module",
        [module / "go.mod", module / "go.sum"],
        build,
        label="Spark operator's chart and CRDs",
        first_time="a few seconds",
    )


def spark_operator_crds() -> tuple[Path, ...]:
    """The Kubeflow Spark operator's CRDs, out of the operator's Go module."""
    return tuple(sorted((spark_operator_module() / "config/crd/bases").glob("*.yaml")))


def spark_operator_binary() -> Path:
    """The Kubeflow Spark operator."""
    return _go_binary(
        "spark-operator",
        SPARK_OPERATOR_VERSION,
        f"{SPARK_OPERATOR_MODULE}/cmd/operator",
        "-s -w",
        first_time="about 1 to 2 min",
    )


def build_all(*, cluster: bool = False) -> None:
    """Make everything that is not there yet; with `cluster` also what a node needs.

    Raises `MissingPrerequisiteError` or `StackError`.
    """
    kafka_libs()
    spark_jars()
    spark_operator_crds()
    etcd_binary()
    kube_apiserver_binary()
    helm_binary()
    kube_score_binary()
    if cluster:
        # One after the other: each go build takes all cores, and what two have in common is compiled once.
        kube_controller_manager_binary()
        kube_scheduler_binary()
        kubelet_binary()
        kube_proxy_binary()
        coredns_binary()
        pause_binary()
        spark_operator_binary()


def _copy_jars(build: Build, pom: Path) -> None:
    prerequisites.java()
    mvn = prerequisites.maven().path
    # Maven writes its resolution state next to the pom it was given; a copy keeps the tree clean.
    copied = build.folder / "pom.xml"
    shutil.copyfile(pom, copied)
    options = ["-q", "-B", "-ntp", "-Dstyle.color=never", "-DincludeScope=runtime"]
    build.run([mvn, *options, "-f", str(copied), MAVEN_COPY, f"-DoutputDirectory={build.folder}"])


_GO_ENV = {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}


def _kubernetes_binary(name: str, first_time: str) -> Path:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return _go_binary(
        name, KUBERNETES_VERSION, package, KUBERNETES_LDFLAGS, first_time=first_time, module=DEV / "go" / "kubernetes"
    )


def _go_binary(
    name: str, version: str, package: str, ldflags: str, *, first_time: str, module: Path | None = None
) -> Path:
    folder = module or DEV / "go" / name

    def build(build: Build) -> None:
        go = prerequisites.go().path
        output = str(build.folder / name)
        build.run([go, "build", "-trimpath", "-ldflags", ldflags, "-o", output, package], cwd=folder, env=_GO_ENV)

    made_from: list[Path | str] = [*sorted(folder.glob("go.*")), *sorted(folder.glob("*.go"))]
    made_from += [package, ldflags, platform.machine()]
    label = f"{name} {version}".strip()
    return toolcache().artifact(name, made_from, build, label=label, first_time=first_time) / name


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
def _progress(what: str, first_time: str) -> Iterator[None]:
    started = time.monotonic()
    interactive = sys.stderr.isatty()
    done = threading.Event()

    def show() -> None:
        while not done.wait(1 if interactive else 30):
            line = f"{what} ... {time.monotonic() - started:.0f} s ({first_time} the first time)"
            if interactive:
                print(f"\r{line}", end="", file=sys.stderr, flush=True)
            else:
                say(line)

    say(f"{what} ({first_time} the first time)")
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
