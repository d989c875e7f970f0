"""What one operator serves by HTTP: its metrics and health, and the webhook that injects the agent."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.inject.index import PolicyIndex
from tidegate.inject.metrics import InjectionMetrics
from tidegate.inject.patch import AgentImage
from tidegate.inject.server import Parts as WebhookParts
from tidegate.inject.server import WebhookServer
from tidegate.inject.trust import FOLDER as WEBHOOK_FILES
from tidegate.inject.trust import Place, WebhookTrust, service_names
from tidegate.kube.loop import LevelLoop
from tidegate.kube.webhooks import WebhookClient
from tidegate.running import Servers, Webhook
from tidegate.service import health
from tidegate.service.http_server import HttpServer
from tidegate.service.metrics import Metrics
from tidegate.service.metrics_access import METRICS_PATH, TokenAccess, metrics_route
from tidegate.service.settings import MetricsAuthentication, Settings
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
) -> Webhook | None:
    settings, files = shared.settings, shared.files
    address = settings.webhook_address
    if address is None:
        return None

    parts = WebhookParts(index, agent, shared.serving_kube.record, shared.executor, metrics, obeyed)
    mounted = settings.webhook_certificates
    server = WebhookServer(address, mounted or files.folder(WEBHOOK_FILES), parts)
    if mounted is not None:
        return Webhook(server, None, settings.idle_tick_s)
    names = service_names(settings.webhook_service, settings.namespace)
    # An address of its own is for those who reach the operator by it, as in tests and on one machine.
    place = Place(
        namespace=settings.namespace,
        secret=settings.webhook_secret,
        configuration=settings.webhook_configuration,
        names=names if address.is_any else (*names, address.host),
    )
    objects = WebhookClient(shared.serving_client)
    trust = WebhookTrust(place, objects, files, shared.executor, shared.clock.now, metrics)
    return Webhook(server, trust, settings.idle_tick_s)


def servers(settings: Settings, freshness: health.Freshness, metrics: Metrics, access: TokenAccess) -> Servers:
    checks_tokens = settings.metrics_access is MetricsAuthentication.KUBERNETES
    read = {METRICS_PATH: metrics_route(metrics.registry, access if checks_tokens else None)}
    routes = {
        health.HEALTH_PATH: health.health_route(freshness),
        health.READY_PATH: health.ready_route(freshness),
    }
    if settings.metrics_address is None:
        both = HttpServer("TIDEGATE_HEALTH_ADDRESS", settings.health_address, routes | read)
        return Servers(both, both)
    return Servers(
        HttpServer("TIDEGATE_HEALTH_ADDRESS", settings.health_address, routes),
        HttpServer("TIDEGATE_METRICS_ADDRESS", settings.metrics_address, read, settings.metrics_certificates),
    )
