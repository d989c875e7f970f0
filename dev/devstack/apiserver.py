"""A real Kubernetes API server (etcd and kube-apiserver) with RBAC and an audit log, by default on 127.0.0.1.

By itself it has no nodes and no controllers: owners' dependents are not collected, and a namespace stays Terminating.
`devstack.node` adds them.
"""

import ipaddress
import json
import re
import secrets
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from devstack import prerequisites
from devstack.certificates import CertificateAuthority, signing_key
from devstack.errors import StackError
from devstack.processes import RunFolder, Service, close_run, eventually, free_ports, sweep
from devstack.toolcache import etcd_binary, kube_apiserver_binary

START_SECONDS = 60.0
FIELD_MANAGER = "tidegate-dev"
WEBHOOK_CLIENT = "kube-apiserver-webhook-client"
"""The common name by which it calls webhooks."""

_SERVICE_ACCOUNT_KEY = "service-accounts.key"
SERVICE_NETWORK = "10.96.0.0/16"
_SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True, slots=True)
class _Started:
    run: RunFolder
    webhook_client: CertificateAuthority
    etcd: Service
    apiserver: Service
    access: "_Access"


@dataclass(frozen=True, slots=True)
class _Access:
    """Address and administrator's token."""

    url: str
    token: str
    ca: Path

    @classmethod
    def read(cls, kubeconfig: Path) -> Self | None:
        """What `_write_kubeconfig` wrote; None for anybody else's file (YAML, client certificates, plugins)."""
        try:
            config = json.loads(kubeconfig.read_text())
            cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
            return cls(cluster["server"], user["token"], Path(cluster["certificate-authority"]))
        except (OSError, ValueError, LookupError, TypeError):
            return None


class ApiServer:
    """An API server, started by `start` or there already (`attach`); a context manager that ends what it started.

    `kubeconfig` is an administrator's (``system:masters``), mode 0600.
    """

    def __init__(self, kubeconfig: Path, started: _Started | None, access: _Access | None) -> None:
        self.kubeconfig = kubeconfig
        self._started = started
        self._access = access

    @classmethod
    def start(cls, *, detached: bool = False, node_address: str | None = None, at: Path | None = None) -> Self:
        """Start etcd and kube-apiserver and wait until it is ready.

        `detached`: they outlive this process. `node_address`: it serves there, for pods too, and expects controllers
        and a kubelet. `at`: its folder, instead of a new one. Raises `StackError` with the log's end, and
        `MissingPrerequisiteError`.
        """
        prerequisites.linux()
        etcd_binary()
        kube_apiserver_binary()
        sweep()
        # A port may be taken between looking and binding; the next attempt draws others.
        for attempts_left in (2, 1, 0):
            started = _lay_out(RunFolder.create("apiserver", at=at), detached, node_address)
            server = cls(_write_kubeconfig(started), started, started.access)
            try:
                started.etcd.start()
                started.apiserver.start()
                server.wait_ready()
                if detached:
                    started.run.detach()
            except StackError as error:
                port_taken = "address already in use" in started.etcd.tail(300) + started.apiserver.tail(300)
                server.close(failed=not port_taken)
                if not (port_taken and attempts_left):
                    raise StackError(f"the API server did not start: {error}") from error
            except BaseException:
                server.close()
                raise
            else:
                return server
        raise StackError("the API server did not start: no free ports")

    @classmethod
    def attach(cls, kubeconfig: Path) -> Self:
        """A cluster that somebody else runs; `apply` and `request` work if a `start` wrote the file."""
        return cls(kubeconfig, None, _Access.read(kubeconfig))

    @property
    def attached(self) -> bool:
        """Whether somebody else runs it."""
        return self._started is None

    @property
    def audit_log(self) -> Path:
        """One JSON object a line for each request, without bodies (level Metadata).

        Raises `StackError` where no `start` wrote the kubeconfig.
        """
        beside = self.kubeconfig.parent / "logs" / "audit.log"
        return beside if beside.is_file() else self._own.run.logs / "audit.log"

    @property
    def logs(self) -> Path | None:
        """The folder of the logs; None when somebody else runs it."""
        return self._started.run.logs if self._started else None

    @property
    def folder(self) -> Path | None:
        """The run folder; None when somebody else runs it."""
        return self._started.run.path if self._started else None

    @property
    def url(self) -> str:
        """``https://<address>:<port>``."""
        return self._reachable.url

    @property
    def authority(self) -> CertificateAuthority:
        """The CA of its certificate, which `node_address` makes the kubelets' as well."""
        return CertificateAuthority(self._own.run.secrets)

    @property
    def webhook_client_authority(self) -> CertificateAuthority:
        """The CA of the client certificate that it shows to webhooks which ask for one; for nothing else."""
        return self._own.webhook_client

    @property
    def service_account_key(self) -> Path:
        """The key that signs service accounts' tokens, PEM."""
        return self._own.run.secrets / _SERVICE_ACCOUNT_KEY

    @property
    def pids(self) -> tuple[int, int]:
        """The processes of kube-apiserver and etcd."""
        return self._own.apiserver.pid, self._own.etcd.pid

    def kill(self) -> None:
        """SIGKILL to kube-apiserver, as a crash; etcd goes on, so that `restart` finds everything."""
        self._own.apiserver.kill()

    def restart(self) -> None:
        """Start kube-apiserver again on its port (ending it first if it runs) and wait until it is ready."""
        if self._own.apiserver.alive:
            self._own.apiserver.kill()
        self._own.apiserver.start()
        self.wait_ready()

    def wait_ready(self, timeout: float = START_SECONDS) -> None:
        """Wait until ``/readyz`` says ok. Raises `StackError` with the logs' ends."""
        services = (self._started.etcd, self._started.apiserver) if self._started else ()

        def ready() -> bool:
            for service in services:
                if not service.alive:
                    raise StackError(f"{service.name} ended:\n{service.tail()}")
            try:
                return self._request("GET", "/readyz", timeout=2) == b"ok"
            except (OSError, StackError):
                return False

        if not eventually(ready, timeout):
            ends = "\n".join(service.tail() for service in services)
            raise StackError(f"{self._reachable.url} is not ready within {timeout:.0f} s:\n{ends}")

    def apply(self, path: Path, *, timeout: float = 30) -> list[str]:
        """Apply a file's documents (server-side, one after the other) and return their names, ``Kind/name``.

        Custom resource definitions are waited for until they are established and served. Raises `StackError` with the
        server's answer. Without a YAML parser in the standard library, the few fields that the address needs are read
        from lines of the usual form: ``apiVersion``, ``kind`` and ``metadata`` without indentation, ``name`` and
        ``namespace`` by two spaces.
        """
        applied: list[str] = []
        for document in re.split(r"(?m)^---.*$", path.read_text()):
            if re.fullmatch(r"(\s|#.*)*", document):
                continue
            manifest = _Manifest.read(document, path)
            self._request(
                "PATCH",
                f"{self._address(manifest)}?fieldManager={FIELD_MANAGER}&force=true",
                body=document.encode(),
                content_type="application/apply-patch+yaml",
            )
            if manifest.kind == "CustomResourceDefinition" and not eventually(
                partial(self._is_served, manifest.name), timeout
            ):
                raise StackError(f"{manifest.name} is not established within {timeout:.0f} s")
            applied.append(f"{manifest.kind}/{manifest.name}")
        return applied

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One request as administrator, JSON both ways. Raises `StackError` with the server's answer."""
        content = json.dumps(body).encode() if body is not None else None
        return json.loads(self._request(method, path, body=content))

    def close(self, *, failed: bool = False) -> None:
        """End it at once. Its data goes, its logs are kept if something `failed`."""
        if self._started is not None:
            close_run(self._started.run, [self._started.apiserver, self._started.etcd], failed=failed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)

    @property
    def _own(self) -> _Started:
        if self._started is None:
            raise StackError(f"the cluster of {self.kubeconfig} is not ours to look into, stop or start")
        return self._started

    @property
    def _reachable(self) -> _Access:
        if self._access is None:
            raise StackError(f"{self.kubeconfig} was not written by this stack: use a Kubernetes client with it")
        return self._access

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float = 30,
    ) -> bytes:
        access = self._reachable
        request = urllib.request.Request(  # noqa: S310 - the address is our own, https
            access.url + path,
            data=body,
            method=method,
            headers={
                "Authorization": f"Bearer {access.token}",
                "Content-Type": content_type,
                "Accept": "application/json",
            },
        )
        # An opener of its own: a proxy of the environment must not see requests to 127.0.0.1.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(access.ca))),
        )
        try:
            with opener.open(request, timeout=timeout) as response:
                answer: bytes = response.read()
                return answer
        except urllib.error.HTTPError as error:
            raise StackError(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from error

    def _address(self, manifest: "_Manifest") -> str:
        root = f"/apis/{manifest.api_version}" if "/" in manifest.api_version else f"/api/{manifest.api_version}"
        resources = self.request("GET", root)["resources"]
        for resource in resources:
            if resource["kind"] == manifest.kind and "/" not in resource["name"]:
                scope = f"/namespaces/{manifest.namespace or 'default'}" if resource["namespaced"] else ""
                return f"{root}{scope}/{resource['name']}/{urllib.parse.quote(manifest.name)}"
        raise StackError(f"the API server knows no {manifest.kind} in {manifest.api_version}")

    def _is_served(self, crd: str) -> bool:
        found = self.request("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}")
        conditions = {condition["type"]: condition["status"] for condition in found["status"].get("conditions") or []}
        if conditions.get("Established") != "True":
            return False
        # Established comes before discovery and the resource's own address: only an answer from there shows it served.
        group, plural = found["spec"]["group"], found["spec"]["names"]["plural"]
        version = next(version["name"] for version in found["spec"]["versions"] if version["served"])
        try:
            self.request("GET", f"/apis/{group}/{version}/{plural}?limit=1")
            served = self.request("GET", f"/apis/{group}/{version}")["resources"]
        except StackError:
            return False
        return any(resource["name"] == plural for resource in served)


@dataclass(frozen=True, slots=True)
class _Manifest:
    api_version: str
    kind: str
    name: str
    namespace: str | None

    @classmethod
    def read(cls, document: str, source: Path) -> Self:
        metadata = re.search(r"(?m)^metadata:[^\n]*\n((?:[ \t#][^\n]*\n|\n)*)", document + "\n")

        def value(key: str, indentation: str, text: str) -> str | None:
            found = re.search(rf"(?m)^{indentation}{key}:[ \t]*[\"']?([^\s\"'#]+)", text)
            return found.group(1) if found else None

        block = metadata.group(1) if metadata else ""
        api_version, kind = value("apiVersion", "", document), value("kind", "", document)
        name = value("name", "  ", block)
        if not (api_version and kind and name):
            raise StackError(f"{source}: a document without apiVersion, kind or metadata.name")
        return cls(api_version, kind, name, value("namespace", "  ", block))


def _lay_out(run: RunFolder, detached: bool, node_address: str | None) -> _Started:
    """Draw the ports, make keys and token, and put the two command lines together."""
    client_port, peer_port, secure_port = free_ports(3)
    address = node_address or "127.0.0.1"
    authority = CertificateAuthority.create(run.secrets)
    # The first address of the service network is the server's own Service.
    first = next(ipaddress.ip_network(SERVICE_NETWORK).hosts())
    names = [f"DNS:{name}" for name in ("localhost", *_SERVICE_NAMES)]
    names += [f"IP:{ip}" for ip in sorted({"127.0.0.1", address, str(first)})]
    server = authority.issue("kube-apiserver", alternative_names=",".join(names))
    service_account_key = run.secrets / _SERVICE_ACCOUNT_KEY
    signing_key(service_account_key)
    token = secrets.token_hex(16)
    tokens = run.secrets / "tokens.csv"
    tokens.touch(mode=0o600)
    tokens.write_text(f"{token},admin,admin,system:masters\n")
    webhook_client, admission = _webhook_client(run)
    policy = run.secrets / "audit-policy.json"
    policy.write_text(json.dumps(_AUDIT_POLICY))
    etcd_url, peer_url = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    etcd = [
        str(etcd_binary()),
        f"--data-dir={run.data / 'etcd'}",
        "--name=dev",
        # The data does not outlive the machine: waiting for the disk would only cost.
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={etcd_url}",
        f"--advertise-client-urls={etcd_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=dev={peer_url}",
    ]
    apiserver = [
        str(kube_apiserver_binary()),
        f"--etcd-servers={etcd_url}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={secure_port}",
        f"--cert-dir={run.secrets}",
        f"--tls-cert-file={server.certificate}",
        f"--tls-private-key-file={server.key}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--authorization-mode=RBAC",
        f"--token-auth-file={tokens}",
        f"--admission-control-config-file={admission}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={service_account_key}",
        f"--service-account-signing-key-file={service_account_key}",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={run.logs / 'audit.log'}",
        "--audit-log-mode=blocking",
    ]
    if node_address is None:
        # Its controller (which would make the default account and its token) does not run here.
        apiserver += ["--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"]
    else:
        kubelet_client = authority.issue("kube-apiserver-kubelet-client")
        apiserver += [
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={kubelet_client.certificate}",
            f"--kubelet-client-key={kubelet_client.key}",
            f"--kubelet-certificate-authority={authority.certificate}",
        ]
    return _Started(
        run=run,
        webhook_client=webhook_client,
        etcd=Service("etcd", etcd, run, detached=detached, grace=5),
        apiserver=Service("kube-apiserver", apiserver, run, detached=detached, grace=5),
        access=_Access(f"https://{address}:{secure_port}", token, authority.certificate),
    )


def _webhook_client(run: RunFolder) -> tuple[CertificateAuthority, Path]:
    """A CA, and an AdmissionConfiguration by which a certificate of it is shown to webhooks (docs/how-to/secure.md)."""
    authority = CertificateAuthority.create(run.secrets / "webhooks")
    shown = authority.issue(WEBHOOK_CLIENT)
    kubeconfig, admission = run.secrets / "webhooks.kubeconfig", run.secrets / "admission.json"
    user = {"client-certificate": str(shown.certificate), "client-key": str(shown.key)}
    # Which webhooks there will be, on which ports, is not known yet.
    users = [{"name": "*", "user": user}]
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "users": users}))
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    plugins = [{"name": "MutatingAdmissionWebhook", "configuration": configuration}]
    admission.write_text(
        json.dumps({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins})
    )
    return authority, admission


def _write_kubeconfig(started: _Started) -> Path:
    path = started.run.path / "kubeconfig"
    path.touch(mode=0o600)
    # JSON is YAML, and needs no library.
    access = started.access
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "dev", "cluster": {"server": access.url, "certificate-authority": str(access.ca)}}],
        "users": [{"name": "admin", "user": {"token": access.token}}],
        "contexts": [{"name": "dev", "context": {"cluster": "dev", "user": "admin"}}],
        "current-context": "dev",
    }
    path.write_text(json.dumps(config, indent=1) + "\n")
    return path
