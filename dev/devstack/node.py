"""A real Kubernetes cluster of one node on this machine, with pods: control plane, kubelet, containerd, Services, DNS.

Without systemd, a registry or Docker; needs root. The pods' network is 10.88.0.0/16 on a bridge of its own with the
node's address 10.88.0.1, where a pod reaches the machine. Nothing leads out of the machine: pods have no route, and DNS
knows only the cluster. NetworkPolicies are accepted and not enforced. A machine has one node at a time.
"""

import contextlib
import fcntl
import json
import os
import platform
import shutil
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from devstack import node_host, prerequisites
from devstack.apiserver import SERVICE_NETWORK, ApiServer
from devstack.archives import stream_archive, write_archive
from devstack.certificates import Certificate
from devstack.errors import StackError
from devstack.images import LAYOUT
from devstack.node_host import ADDRESS, BRIDGE, CGROUP, POD_NETWORK
from devstack.processes import RunFolder, Service, eventually, free_ports, tail
from devstack.toolcache import (
    Build,
    coredns_binary,
    kube_controller_manager_binary,
    kube_proxy_binary,
    kube_scheduler_binary,
    kubelet_binary,
    pause_binary,
    say,
    toolcache,
)

NAME = "node1"
START_SECONDS = 90.0
TURN_SECONDS = 3600.0
"""How long another process's node is waited for."""

# One place for all users of the machine, since bridge and tables are there once; short, for the sockets' paths.
FOLDER = Path("/var/lib/tidegate-node")
_LOCK = Path("/run/lock/tidegate-node.lock")
_PAUSE_IMAGE = "localhost/pause:1"


@dataclass(frozen=True, slots=True)
class _Probe:
    """Where a daemon says that it is ready; without a URL it is when it runs."""

    service: Service
    url: str | None = None

    @property
    def answers(self) -> bool:
        if not self.service.alive:
            raise StackError(f"{self.service.name} ended:\n{self.service.tail()}")
        if self.url is None:
            return True
        try:
            with urllib.request.urlopen(self.url, timeout=2) as response:  # noqa: S310 - our own address
                return bool(response.status == 200)
        except OSError:
            return False


class Node:
    """A one-node cluster, started by `start` or there already (`attach`); a context manager that ends what it started.

    `apiserver` is its API server, with the kubeconfig of an administrator and the audit log.
    """

    address = ADDRESS

    def __init__(self, run: RunFolder, apiserver: ApiServer, services: tuple[Service, ...] | None) -> None:
        self.apiserver = apiserver
        self._run = run
        self._services = services

    @classmethod
    def start(cls, *, detached: bool = False) -> Self:
        """Bring it up and wait until pods can run and resolve names; first waits for another process's node to go.

        `detached`: it outlives this process. Raises `StackError` with the log's end, and `MissingPrerequisiteError`.
        """
        prerequisites.node()
        for binary in (
            kube_controller_manager_binary,
            kube_scheduler_binary,
            kubelet_binary,
            kube_proxy_binary,
            coredns_binary,
        ):
            binary()
        pause = _pause_archive()
        run = _occupy(detached=detached)
        services: list[Service] = []
        try:
            node_host.prepare(run.path)
            containerd = _containerd(run, detached)
            services.append(containerd)
            containerd.start()
            apiserver = ApiServer.start(detached=detached, node_address=ADDRESS, at=run.path / "apiserver")
            node = cls(run, apiserver, ())
            if not eventually(lambda: containerd.alive and node._ctr_answers(), 20):
                raise StackError(f"containerd does not answer:\n{containerd.tail()}")
            node.load(pause)
            probes = _daemons(run, apiserver, detached)
            for probe in probes:
                services.append(probe.service)
                probe.service.start()
            if not eventually(lambda: all(probe.answers for probe in probes) and node._takes_pods(), START_SECONDS):
                ends = "\n".join(probe.service.tail(5) for probe in probes)
                raise StackError(f"the node is not ready within {START_SECONDS:.0f} s:\n{ends}")
            if detached:
                run.detach()
        except BaseException as error:
            say(f"the node's logs are kept in {_keep_logs(run)}")
            _tear_down(run, services)
            if isinstance(error, StackError):
                raise StackError(f"the node did not start: {error}") from error
            raise
        return cls(run, apiserver, tuple(services))

    @classmethod
    def attach(cls) -> Self | None:
        """The node that `start(detached=True)` left running; None when there is none."""
        run = RunFolder(FOLDER)
        if not _is_detached(run) or run.is_abandoned():
            return None
        return cls(run, ApiServer.attach(FOLDER / "apiserver" / "kubeconfig"), None)

    @property
    def attached(self) -> bool:
        """Whether somebody else runs it."""
        return self._services is None

    @property
    def kubeconfig(self) -> Path:
        """An administrator's."""
        return self.apiserver.kubeconfig

    @property
    def logs(self) -> Path:
        """The daemons' logs; the containers' are in ``pods``, those of etcd and kube-apiserver beside the node's."""
        return self._run.logs

    @property
    def audit_log(self) -> Path:
        """One JSON object a line for each request, without bodies."""
        return self._run.path / "apiserver" / "logs" / "audit.log"

    def load(self, *archives: Path) -> None:
        """Give images to the node: files of `build_image`, or docker-archives.

        Pods name them as they were built (``latest`` would be pulled). What the node has of an image is not read again.
        """
        for archive in archives:
            if archive.suffix != ".json":
                self._ctr("images", "import", str(archive))
                continue
            image = json.loads(archive.read_text())
            present = self._ctr("content", "ls", "--quiet").split()
            reading, writing = os.pipe()
            log = self._run.logs / "import.out"
            with log.open("ab") as output:
                importing = subprocess.Popen(
                    [*self._ctr_command, "images", "import", "-"], stdin=reading, stdout=output, stderr=output
                )
            os.close(reading)
            # A broken pipe: the log says why.
            with importing, contextlib.suppress(BrokenPipeError), os.fdopen(writing, "wb") as pipe:
                stream_archive(pipe, archive.parent / LAYOUT, image["name"], image["manifest"], present)
            if importing.returncode != 0:
                raise StackError(f"the node did not take {image['name']}:\n{tail(log)}")

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 120) -> str:
        """What ``kubectl`` prints as administrator. Raises `StackError` with what it says when it fails."""
        command = [prerequisites.program("kubectl") or "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin or "", capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0:
            raise StackError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def close(self, *, failed: bool = False) -> None:
        """End all pods and daemons at once and undo everything; the logs are kept if something `failed`."""
        if self._services is None:
            return
        if failed:
            self._describe()
            say(f"the node's logs are kept in {_keep_logs(self._run)}")
        _tear_down(self._run, self._services)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)

    def _describe(self) -> None:
        """Write what the cluster holds beside the logs, for whoever looks into a failure."""
        for name, arguments in (
            ("pods.txt", ["describe", "pods", "-A"]),
            ("events.txt", ["get", "events", "-A", "--sort-by=.metadata.creationTimestamp"]),
        ):
            with contextlib.suppress(StackError, subprocess.TimeoutExpired):
                (self._run.logs / name).write_text(self.kubectl(*arguments, timeout=20))

    @property
    def _ctr_command(self) -> list[str]:
        return [prerequisites.program("ctr") or "ctr", f"--address={_socket(self._run)}", "--namespace=k8s.io"]

    def _ctr(self, *arguments: str) -> str:
        done = subprocess.run([*self._ctr_command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StackError(f"ctr {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _ctr_answers(self) -> bool:
        try:
            self._ctr("version")
        except StackError:
            return False
        return True

    def _takes_pods(self) -> bool:
        """Whether the node is Ready and the controllers have made what each pod of namespace default needs."""
        try:
            found = self.apiserver.request("GET", f"/api/v1/nodes/{NAME}")
            self.apiserver.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")
            self.apiserver.request("GET", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt")
        except (StackError, OSError):
            return False
        conditions = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
        return conditions.get("Ready") == "True" and not found["spec"].get("taints")


def sweep_node() -> bool:
    """Take down what a killed process left of its node; whether there was anything."""
    with _locked():
        return _sweep()


def take_down() -> bool:
    """Take down the node that `Node.start(detached=True)` left running, or what a crash left; whether there was any."""
    with _locked():
        run = RunFolder(FOLDER)
        if _is_detached(run):
            _tear_down(run, ())
            return True
        return _sweep()


def _sweep() -> bool:
    run = RunFolder(FOLDER)
    # Without an owner it was killed while it was made: whoever makes one holds our lock.
    if not FOLDER.exists() or ((FOLDER / "owner").exists() and not run.is_abandoned()):
        return False
    say("cleaning up after a node whose process was killed")
    _tear_down(run, ())
    return True


def _occupy(*, detached: bool) -> RunFolder:
    """The node's folder, ours from now on; waits for its present owner. Raises `StackError` when it would never go."""
    deadline = time.monotonic() + TURN_SECONDS
    said = False
    while True:
        with _locked():
            _sweep()
            if not FOLDER.exists():
                return RunFolder.create("node", at=FOLDER)
            if (FOLDER / "owner").read_text().startswith(f"{os.getpid()} "):
                raise StackError("this process has a node already, and a machine has one at a time")
        if detached or _is_detached(RunFolder(FOLDER)) or time.monotonic() > deadline:
            raise StackError("a node is up on this machine: `make node-down` ends one that `make node-up` began")
        if not said:
            said = True
            say("waiting for another process's node, of which a machine has one at a time")
        time.sleep(0.5)


def _is_detached(run: RunFolder) -> bool:
    try:
        return (run.path / "owner").read_text().startswith("detached")
    except OSError:
        return False


def _keep_logs(run: RunFolder) -> Path:
    control_plane = run.path / "apiserver" / "logs"
    if control_plane.is_dir():
        shutil.copytree(control_plane, run.logs, dirs_exist_ok=True)
    return run.keep_logs()


def _tear_down(run: RunFolder, services: Sequence[Service]) -> None:
    """End the daemons, then the pods, undo what the machine was told, and remove the folder."""
    for service in services:
        service.kill()
    control_plane = RunFolder(run.path / "apiserver")
    for part in (run, control_plane):
        part.end_processes(grace=0)
    node_host.restore(run.path, _socket(run))
    run.remove()


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    _LOCK.parent.mkdir(parents=True, exist_ok=True)
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _socket(run: RunFolder) -> Path:
    return run.path / "containerd.sock"


def _pause_archive() -> Path:
    binary = pause_binary()

    def build(build: Build) -> None:
        layer = build.folder / "layer.tar"
        with tarfile.open(layer, "w") as tar:
            tar.add(binary, "pause", filter=_plain)
        config = {"Entrypoint": ["/pause"], "User": "65535:65535"}
        write_archive(build.folder / "pause.tar", _PAUSE_IMAGE, layer, config, platform.machine())
        layer.unlink()

    folder = toolcache().artifact(
        "pause-image", [binary, _PAUSE_IMAGE], build, label="pause image", first_time="a moment"
    )
    return folder / "pause.tar"


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = 0
    return info


def _containerd(run: RunFolder, detached: bool) -> Service:
    network = run.path / "cni"
    network.mkdir()
    pods = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_NETWORK, "rangeStart": "10.88.0.10"}]],
        "routes": [{"dst": SERVICE_NETWORK}],
        "dataDir": str(run.data / "cni"),
    }
    bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "hairpinMode": True, "ipam": pods}
    (network / "10-bridge.conflist").write_text(
        json.dumps({"cniVersion": "0.4.0", "name": "tidegate", "plugins": [bridge]})
    )
    config = run.path / "containerd.toml"
    config.write_text(
        f"""
        version = 2
        root = "{run.data / "containerd"}"
        state = "{run.data / "containerd-state"}"
        [grpc]
          address = "{_socket(run)}"
        [plugins."io.containerd.grpc.v1.cri"]
          sandbox_image = "{_PAUSE_IMAGE}"
          # Without CAP_SYS_RESOURCE, as in some virtual machines, a score below one's own can't be set.
          restrict_oom_score_adj = true
          # Below our folder, network namespaces are found as mounts when it is cleaned up.
          netns_mounts_under_state_dir = true
        [plugins."io.containerd.grpc.v1.cri".cni]
          bin_dir = "{prerequisites.CNI_PLUGINS}"
          conf_dir = "{network}"
        """
    )
    command = [prerequisites.program("containerd") or "containerd", "--config", str(config)]
    return Service("containerd", command, run, env=_path(), detached=detached)


def _daemons(run: RunFolder, apiserver: ApiServer, detached: bool) -> list[_Probe]:
    """Everything that needs the API server."""
    kubeconfig = f"--kubeconfig={apiserver.kubeconfig}"
    manager_port, scheduler_port, kubelet_port, proxy_port, metrics_port, dns_port = free_ports(6)
    authority = apiserver.authority
    # Certificates for the daemons' own ports, which they would otherwise make in their default folders.
    local = authority.issue("localhost", alternative_names="DNS:localhost,IP:127.0.0.1")
    serving = authority.issue("kubelet", alternative_names=f"DNS:{NAME},IP:{ADDRESS}")
    kubelet_config = run.path / "kubelet.json"
    kubelet_config.write_text(json.dumps(_kubelet_config(run, serving, authority.certificate, kubelet_port), indent=1))
    corefile = run.path / "Corefile"
    corefile.write_text(
        f"""cluster.local:53 in-addr.arpa:53 {{
  bind {ADDRESS}
  errors
  ready 127.0.0.1:{dns_port}
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {apiserver.kubeconfig} dev
    pods insecure
  }}
}}
# Nobody else is asked: what the cluster does not know is not there.
.:53 {{
  bind {ADDRESS}
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""
    )
    tls = [f"--tls-cert-file={local.certificate}", f"--tls-private-key-file={local.key}"]

    def daemon(name: str, command: list[str]) -> Service:
        return Service(name, command, run, env=_path(), detached=detached, grace=5)

    manager = daemon(
        "kube-controller-manager",
        [
            *(str(kube_controller_manager_binary()), kubeconfig, "--leader-elect=false"),
            *("--bind-address=127.0.0.1", f"--secure-port={manager_port}", *tls),
            f"--service-account-private-key-file={apiserver.service_account_key}",
            f"--root-ca-file={authority.certificate}",
        ],
    )
    scheduler = daemon(
        "kube-scheduler",
        [
            *(str(kube_scheduler_binary()), kubeconfig, "--leader-elect=false"),
            *("--bind-address=127.0.0.1", f"--secure-port={scheduler_port}", *tls),
        ],
    )
    kubelet = daemon(
        "kubelet",
        [
            *(str(kubelet_binary()), kubeconfig, f"--config={kubelet_config}", f"--root-dir={run.data / 'kubelet'}"),
            *(f"--cert-dir={run.secrets}", f"--hostname-override={NAME}", f"--node-ip={ADDRESS}"),
        ],
    )
    proxy = daemon(
        "kube-proxy",
        [
            *(str(kube_proxy_binary()), kubeconfig, f"--hostname-override={NAME}", f"--cluster-cidr={POD_NETWORK}"),
            # All its rules in one table of its own, and not among the machine's.
            "--proxy-mode=nftables",
            # The answer of a pod on the same bridge comes back through here, whatever the bridge shows to netfilter.
            "--masquerade-all",
            *("--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0"),
            "--conntrack-tcp-timeout-close-wait=0",
            *(f"--healthz-bind-address=127.0.0.1:{proxy_port}", f"--metrics-bind-address=127.0.0.1:{metrics_port}"),
        ],
    )
    dns = daemon("coredns", [str(coredns_binary()), "-conf", str(corefile)])
    return [
        _Probe(kubelet, f"http://127.0.0.1:{kubelet_port}/healthz"),
        _Probe(proxy, f"http://127.0.0.1:{proxy_port}/healthz"),
        _Probe(dns, f"http://127.0.0.1:{dns_port}/ready"),
        _Probe(manager),
        _Probe(scheduler),
    ]


def _kubelet_config(run: RunFolder, serving: Certificate, ca: Path, health_port: int) -> dict[str, Any]:
    """KubeletConfiguration, kubelet.config.k8s.io/v1beta1."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": health_port,
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        # Only the API server has a certificate of this CA.
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(ca)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{_socket(run)}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "clusterDNS": [ADDRESS],
        "clusterDomain": "cluster.local",
        # The machine's search domains and servers are not the pods'.
        "resolvConf": "",
        "makeIPTablesUtilChains": False,
        # Nothing could be pulled again.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
        "podLogsDir": str(run.logs / "pods"),
        "volumePluginDir": str(run.data / "volume-plugins"),
        # A changed Secret reaches its volume within seconds instead of a minute.
        "syncFrequency": "5s",
    }


def _path() -> dict[str, str]:
    """The daemons call nft, mount and the like."""
    return {"PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"}
