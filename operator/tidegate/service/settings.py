"""What the operator is told by its environment, checked once at the start."""

from __future__ import annotations

import ipaddress
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo

from tidegate.election.candidate import Timing
from tidegate.jobs.settings import SparkSettings
from tidegate.resources.connection import QuotaSpec

_PREFIX: Final = "TIDEGATE_"


class BadSettings(ValueError):
    """The environment cannot be used: one line a variable, each says what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Port 0: any free one."""

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether only this machine, or this pod, reaches it."""
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def is_any(self) -> bool:
        """Whether it stands for all of the machine's addresses."""
        return ipaddress.ip_address(self.host).is_unspecified

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _address(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    host, colon, port = value.rpartition(":")
    host = host.strip("[]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ValueError("has to be an IP address and a port, such as 127.0.0.1:8080 or [::]:8080") from None
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError("has to end in a port from 0 to 65535, such as 127.0.0.1:8080")
    return Address(host, int(port))


def _names(value: Any) -> Any:
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


def _all_namespaces(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name):
            raise ValueError(
                f"{name!r} is not the name of a namespace: names have lower-case letters, digits and '-', and are "
                "separated by commas"
            )
    return names


def _object(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError('has to be a JSON object, such as {"concurrentResets": 2}') from None


class MetricsAuthentication(StrEnum):
    """Who may read ``/metrics``. ``KUBERNETES``: whoever may ``get`` that non-resource URL, by a bearer token."""

    NONE = "none"
    KUBERNETES = "kubernetes"


T = TypeVar("T")


def _needs_metrics_address(value: T, info: ValidationInfo) -> T:
    if value and info.data.get("metrics_address") is None:
        raise ValueError(f"is of use only with {_PREFIX}METRICS_ADDRESS: set that too, or remove this")
    return value


def _needs_client_ca(names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    if names and info.data.get("webhook_client_ca") is None:
        raise ValueError(f"is of use only with {_PREFIX}WEBHOOK_CLIENT_CA: set that too, or remove this")
    return names


def _has_certificates(address: Address, info: ValidationInfo) -> Address:
    """A webhook needs certificates: mounted ones, or a place for its own."""
    given = info.data
    own = ("namespace", "webhook_secret", "webhook_service")
    if given.get("webhook_certificates") is None and not all(given.get(name) for name in own):
        names = ", ".join(f"{_PREFIX}{name.upper()}" for name in own)
        raise ValueError(f"needs certificates: set {_PREFIX}WEBHOOK_CERTIFICATES, or all of {names}")
    return address


def _needs_namespace(lease: str, info: ValidationInfo) -> str:
    if lease and not info.data.get("namespace"):
        raise ValueError(f"names a Lease, which needs a namespace: set {_PREFIX}NAMESPACE")
    return lease


def _is_one_of_them(shard: int, info: ValidationInfo) -> int:
    shards = info.data.get("shards")
    if shards is not None and shard >= shards:
        raise ValueError(f"has to be less than {_PREFIX}SHARDS, which is {shards}")
    return shard


def _in_time(retry_s: float, info: ValidationInfo) -> float:
    lease_s, renew_s = info.data.get("lease_duration_s"), info.data.get("lease_renew_s")
    if lease_s is not None and renew_s is not None:
        try:
            Timing(lease_s, renew_s, retry_s)
        except ValueError as error:
            raise ValueError(f"{error}. Set {_PREFIX}LEASE_RETRY_S < LEASE_RENEW_S < LEASE_DURATION_S") from None
    return retry_s


def _outlasts_listings(limit_s: float, info: ValidationInfo) -> float:
    interval_s = info.data.get("health_interval_s")
    if interval_s is not None and interval_s >= limit_s:
        raise ValueError(
            f"has to be more than {_PREFIX}HEALTH_INTERVAL_S, which is {interval_s:g}. Otherwise /healthz would fail "
            "between two listings. Three times as much leaves time for one that fails"
        )
    return limit_s


Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Settings(BaseModel):
    """The operator's settings. Each field is the variable ``TIDEGATE_<FIELD>``; ``spark`` has its own, see there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespaces: Annotated[tuple[str, ...], BeforeValidator(_names), AfterValidator(_all_namespaces)] = ()
    """The namespaces that are served, separated by commas. Empty: the whole cluster."""

    health_address: Annotated[Address, BeforeValidator(_address)] = Address("127.0.0.1", 8080)
    """The address of ``/healthz`` and ``/readyz``, which need no authentication; in a pod ``[::]:8080``, which
    stands for all IPv4 addresses as well."""

    metrics_address: Annotated[Address, BeforeValidator(_address)] | None = None
    """The address of ``/metrics``; in a pod ``[::]:8443``. Unset: that of ``/healthz``."""

    metrics_authentication: MetricsAuthentication | None = None
    """Who may read the metrics. ``none``: everybody. ``kubernetes``: users who may ``get`` the non-resource URL
    ``/metrics``, by a bearer token. Unset: ``none`` on a loopback address, ``kubernetes`` on any other."""

    metrics_audience: Annotated[str, Field(max_length=253)] = ""
    """The audience that a reader's token must have. Unset: that of the API server, which any pod's own token has. A
    token with another audience cannot be used anywhere else."""

    metrics_certificates: Annotated[Path, AfterValidator(_needs_metrics_address)] | None = None
    """A folder with ``tls.crt`` and ``tls.key``, which are read again when they change; only with
    ``TIDEGATE_METRICS_ADDRESS``. Unset: the operator's own certificate if ``TIDEGATE_METRICS_SERVICE`` is set,
    otherwise plain HTTP. Over plain HTTP, tokens are requested only on a loopback address."""

    metrics_service: Annotated[str, AfterValidator(_needs_metrics_address)] = ""
    """The Service of the metrics. The operator's own certificate then has its names, and is kept in
    ``TIDEGATE_WEBHOOK_SECRET``."""

    namespace: Annotated[str, Field(max_length=63)] = ""
    """The operator's own namespace, from the downward API."""

    lease: Annotated[str, Field(max_length=253), AfterValidator(_needs_namespace)] = ""
    """The Lease, in ``TIDEGATE_NAMESPACE``, that decides which of several replicas leads, while the others stand by.
    Empty: there is only one process, which always leads."""

    replica: Annotated[str, Field(max_length=253)] = ""
    """The name of this replica in the Lease; only one process may have it at a time. In a pod, it is the pod's name,
    from the downward API. A process that is started again then takes over from the previous one at once. Unset: the
    host's name."""

    shards: Annotated[int, Field(ge=1, le=64)] = 1
    """The number of shards among which Kafka clusters are spread. Each shard has its own processes and its own
    Lease."""

    shard: Annotated[int, Field(ge=0, le=63), AfterValidator(_is_one_of_them)] = 0
    """The shard of this process, from 0."""

    lease_duration_s: Annotated[int, Field(ge=1, le=3600)] = 10
    """How long the others wait for a leader that is no longer heard from, in whole seconds."""

    lease_renew_s: Seconds = 7.0
    """How long a leader may go without renewing its Lease before it stops its work and ends."""

    lease_retry_s: Annotated[Seconds, AfterValidator(_in_time), Field(validate_default=True)] = 2.0
    """The time between two renewals, and between two looks of a standby."""

    webhook_certificates: Path | None = None
    """A folder with ``tls.crt`` and ``tls.key``, which are read again when they change. Unset: the operator makes its
    own certificate."""

    webhook_secret: str = ""
    """The Secret, in ``TIDEGATE_NAMESPACE``, in which the operator keeps its own certificates of the webhook and of the
    metrics."""

    webhook_service: str = ""
    """The Service of the webhook, whose names the operator's own certificate has."""

    webhook_client_ca: Path | None = None
    """A PEM file with the CA certificates for the client certificates of API servers, which is read again when it
    changes. Only clients with such a certificate may call the webhook. Unset: everybody who can reach it may."""

    webhook_client_names: Annotated[tuple[str, ...], BeforeValidator(_names), AfterValidator(_needs_client_ca)] = ()
    """Common names or DNS names, separated by commas, one of which such a certificate must have. Empty: any certificate
    of that CA is accepted."""

    webhook_configuration: str = ""
    """The MutatingWebhookConfiguration into which the operator writes its own CA. Empty: none."""

    webhook_address: Annotated[Address, BeforeValidator(_address), AfterValidator(_has_certificates)] | None = None
    """The HTTPS address of the webhook that injects the agent into pods; in a pod ``[::]:9443``. Unset: nothing is
    injected."""

    agent_image: Annotated[str, Field(min_length=1)] = "tidegate-agent:latest"
    """The image from which an injected pod takes the agent."""

    agent_image_pull_policy: Annotated[str, Field(pattern="^(Always|IfNotPresent|Never)$")] = "IfNotPresent"
    """``Always``, ``IfNotPresent`` or ``Never``."""

    health_interval_s: Seconds = 30.0
    """The time between two listings of Tidegate's resources by the freshness check."""

    unobserved_limit_s: Annotated[Seconds, AfterValidator(_outlasts_listings), Field(validate_default=True)] = 90.0
    """How long a resource's generation may stay unobserved before ``/healthz`` fails. Must be longer than
    ``TIDEGATE_HEALTH_INTERVAL_S``."""

    runtime_directory: Path = Field(default_factory=lambda: Path(tempfile.gettempdir()) / "tidegate")
    """The folder for files with the certificates and passwords of connections: memory-backed, for this process only."""

    active_tick_s: Seconds = 1.0
    """The time between two looks at a Kafka cluster, and at a run, while a run is in progress."""

    pause_tick_s: Seconds = 0.2
    """The same while consumers are about to release the partitions that a pause asks for."""

    unmanaged_after_s: Seconds = 5.0
    """How long an owner may not respond to a pause before it counts as an owner without the agent."""

    idle_tick_s: Seconds = 10.0
    """The time between two looks at a Kafka cluster otherwise, and between two checks of Secrets for changes."""

    deletion_limit_s: Seconds = 120.0
    """How long the deletion of an OffsetReset may wait for its offsets to be rolled back, and the deletion of a pause
    for Kafka. An operator that finds a reset deleted longer ago tries for 30 seconds all the same."""

    observe: bool = False
    """Whether every KafkaConnection is treated as if it had ``spec.observe``, with which nothing is changed in Kafka:
    ``true`` or ``false``."""

    quota: Annotated[QuotaSpec, BeforeValidator(_object)] | None = None
    """The quota of every KafkaConnection without ``spec.allow.quota``, as JSON. Unset: no limits."""

    separate_approver: bool = False
    """Whether a plan has to be approved by somebody other than ``spec.requester``: ``true`` or ``false``."""

    undo_kept_s: Annotated[float, Field(ge=0, le=31_622_400)] = 604_800.0
    """How long a reset can be undone after its OffsetReset was deleted, at most 366 days. 0: not at all."""

    max_launches: Annotated[int, Field(ge=1, le=100)] = 12
    """How many times in all a run's job is started before the run fails."""

    threads: Annotated[int, Field(ge=2, le=128)] = 32
    """The number of threads for calls to the API server and looks at Kafka. There are as many again for taking over
    runs, as many for Kafka Connect's workers, and as many for backfills."""

    log_level: Annotated[str, Field(pattern="^(DEBUG|INFO|WARNING|ERROR)$")] = "INFO"
    """``DEBUG``, ``INFO``, ``WARNING`` or ``ERROR``."""

    log_format: Annotated[str, Field(pattern="^(text|json)$")] = "text"
    """``text``: a line for each message. ``json``: an object on each line, with ``time`` (RFC 3339), ``level``,
    ``logger``, ``message`` and, if there is one, ``exception``."""

    spark: SparkSettings = Field(default_factory=SparkSettings)

    @property
    def election(self) -> Timing:
        return Timing(self.lease_duration_s, self.lease_renew_s, self.lease_retry_s)

    @property
    def metrics_access(self) -> MetricsAuthentication:
        """What holds: metrics are open to the network only where that was said."""
        if self.metrics_authentication is not None:
            return self.metrics_authentication
        is_local = (self.metrics_address or self.health_address).is_local
        return MetricsAuthentication.NONE if is_local else MetricsAuthentication.KUBERNETES

    @property
    def metrics_by_own_certificate(self) -> bool:
        """Whether the metrics are served with a certificate that the operator makes and renews itself."""
        return bool(self.metrics_service) and self.metrics_certificates is None

    @property
    def metrics_over_tls(self) -> bool:
        return self.metrics_certificates is not None or self.metrics_by_own_certificate

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Raises ``BadSettings``, which names the variables."""
        given = {
            name: environment[f"{_PREFIX}{name.upper()}"]
            for name in cls.model_fields
            if name != "spark" and environment.get(f"{_PREFIX}{name.upper()}")
        }
        try:
            spark = SparkSettings.from_environment(environment)
        except ValueError as error:
            raise BadSettings(str(error)) from None
        try:
            found = cls.model_validate({**given, "spark": spark})
        except ValidationError as error:
            lines = [f"{_PREFIX}{str(e['loc'][0]).upper()} is {e['input']!r}: {e['msg']}" for e in error.errors()]
            raise BadSettings("\n".join(lines)) from None
        _check_metrics(found)
        return found


def _check_metrics(settings: Settings) -> None:
    """Tokens that open the API server too cross no network in the clear. Raises ``BadSettings``."""
    if settings.metrics_by_own_certificate and not (settings.namespace and settings.webhook_secret):
        raise BadSettings(
            f"{_PREFIX}METRICS_SERVICE is {settings.metrics_service!r}: the operator has nowhere to keep its own "
            f"certificate. Set {_PREFIX}NAMESPACE and {_PREFIX}WEBHOOK_SECRET, or {_PREFIX}METRICS_CERTIFICATES"
        )
    address = settings.metrics_address or settings.health_address
    by_token = settings.metrics_access is MetricsAuthentication.KUBERNETES
    if by_token and not settings.metrics_over_tls and not address.is_local:
        raise BadSettings(
            f"{_PREFIX}METRICS_AUTHENTICATION is 'kubernetes' on {address} without TLS: readers' tokens would cross "
            f"the network in plain HTTP. Set {_PREFIX}METRICS_ADDRESS, and either {_PREFIX}METRICS_CERTIFICATES or "
            f"{_PREFIX}METRICS_SERVICE; or serve them on a loopback address; or set "
            f"{_PREFIX}METRICS_AUTHENTICATION=none, which lets everybody read them"
        )
