"""What one operator serves by HTTP: its metrics and health, and the webhook that injects the agent."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.inject.callers import Callers
from tidegate.inject.index import PolicyIndex
from tidegate.inject.metrics import InjectionMetrics
from tidegate.inject.patch import AgentImage
from tidegate.inject.server import Parts as WebhookParts
from tidegate.inject.server import WebhookServer
from tidegate.inject.trust import FOLDER as OWN_FILES
from tidegate.inject.trust import Place, WebhookTrust, service_names
from tidegate.kube.loop import LevelLoop
from tidegate.kube.pods import PodsClient
from tidegate.kube.webhooks import WebhookClient
from tidegate.running import OwnCertificates, Servers
from tidegate.service import health
from tidegate.service.http_server import HttpServer
from tidegate.service.metrics_access import METRICS_PATH, TokenAccess, metrics_route
from tidegate.service.settings import MetricsAuthentication
from tidegate.wiring.shared import Shared


def wanting_topics(shared: Shared, connections: LevelLoop) -> Callable[[str, str], None]:
    """For whoever learns that agents were told of a connection's control topic."""

    def obeyed(namespace: str, connection: str) -> None:
        open_now = shared.live.get(namespace, connection)
        if shared.topics.want(namespace, connection) and open_now is not None:
            connections.wake(open_now.uid)

    return obeyed


def webhook(
    shared: Shared,
    index: PolicyIndex,
    agent: AgentImage,
    metrics: InjectionMetrics,
    obeyed: Callable[[str, str], None],
) -> WebhookServer | None:
    settings, files = shared.settings, shared.files
    address = settings.webhook_address
    if address is None:
        return None
    kube, pods = shared.serving_kube, PodsClient(shared.serving_client)
    parts = WebhookParts(index, agent, kube.record, pods.is_there, shared.executor, metrics, obeyed)
    ca, names = settings.webhook_client_ca, frozenset(settings.webhook_client_names)
    callers = None if ca is None else Callers(ca, names)
    return WebhookServer(address, settings.webhook_certificates or files.folder(OWN_FILES), parts, callers=callers)


def own_certificates(shared: Shared, metrics: InjectionMetrics) -> OwnCertificates | None:
    """What keeps them; ``None`` where all certificates are mounted, or there are none."""
    settings = shared.settings
    of_webhook = settings.webhook_address is not None and settings.webhook_certificates is None
    names: list[str] = []
    for address, service, is_own in (
        (settings.webhook_address, settings.webhook_service, of_webhook),
        (settings.metrics_address, settings.metrics_service, settings.metrics_by_own_certificate),
    ):
        if not is_own or address is None:
            continue
        names += service_names(service, settings.namespace)
        # An address of its own is for those who reach the operator by it, as in tests and on one machine.
        if not address.is_any:
            names.append(address.host)
    if not names:
        return None
    place = Place(
        namespace=settings.namespace,
        secret=settings.webhook_secret,
        configuration=settings.webhook_configuration if of_webhook else "",
        names=tuple(dict.fromkeys(names)),
    )
    objects = WebhookClient(shared.serving_client)
    trust = WebhookTrust(place, objects, shared.files, shared.executor, shared.clock.now, metrics)
    return OwnCertificates(trust, settings.idle_tick_s)


def servers(shared: Shared, freshness: health.Freshness) -> Servers:
    settings, metrics = shared.settings, shared.metrics
    access = TokenAccess(shared.serving_kube, shared.clock.monotonic, settings.metrics_audience)
    checks_tokens = settings.metrics_access is MetricsAuthentication.KUBERNETES
    read = {METRICS_PATH: metrics_route(metrics.registry, access if checks_tokens else None)}
    routes = {
        health.HEALTH_PATH: health.health_route(freshness),
        health.READY_PATH: health.ready_route(freshness),
    }
    if settings.metrics_address is None:
        both = HttpServer("TIDEGATE_HEALTH_ADDRESS", settings.health_address, routes | read)
        return Servers(both, both)
    own = settings.metrics_by_own_certificate
    certificates = shared.files.folder(OWN_FILES) if own else settings.metrics_certificates
    return Servers(
        HttpServer("TIDEGATE_HEALTH_ADDRESS", settings.health_address, routes),
        HttpServer("TIDEGATE_METRICS_ADDRESS", settings.metrics_address, read, certificates, later=own),
    )
