"""``tidegate.kube.injection.WebhookObjects`` in memory, held to the API server's by ``tests/contract``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from tidegate.kube.injection import KeptSecret
from tidegate.kube.ports import Conflict, KubeFailure, NotFound


class FakeObjects:
    """Secrets by (namespace, name), and the CA certificates of configurations' webhooks.

    ``rival``: what somebody else writes into a Secret just before our next write. ``forbidden``: Secrets can't be
    written. ``writes``: of Secrets, ours.
    """

    def __init__(self) -> None:
        self.secrets: dict[tuple[str, str], KeptSecret] = {}
        self.configurations: dict[str, list[bytes]] = {}
        self.rival: Mapping[str, bytes] | None = None
        self.forbidden = False
        self.writes = 0
        self._versions = itertools.count(1)

    def keep(self, namespace: str, name: str, data: Mapping[str, bytes]) -> None:
        """What somebody else writes."""
        self.secrets[namespace, name] = KeptSecret(dict(data), str(next(self._versions)))

    def secret(self, namespace: str, name: str) -> KeptSecret:
        return self.secrets.get((namespace, name), KeptSecret({}, None))

    def put_secret(self, namespace: str, name: str, kept: KeptSecret) -> None:
        what = f"write Secret {namespace}/{name}"
        if self.forbidden:
            raise KubeFailure(f"{what}: 403")
        if self.rival is not None:
            rival, self.rival = self.rival, None
            self.keep(namespace, name, rival)
        newest = self.secret(namespace, name).version
        if kept.version is not None and newest is None:
            raise NotFound(f"{what}: 404")
        if kept.version != newest:
            raise Conflict(f"{what}: it was changed")
        self.keep(namespace, name, kept.data)
        self.writes += 1

    def trust(self, configuration: str, ca_bundle: bytes) -> bool:
        webhooks = self.configurations.get(configuration)
        if webhooks is None:
            raise NotFound(f"read MutatingWebhookConfiguration {configuration}: 404")
        if all(bundle == ca_bundle for bundle in webhooks):
            return False
        self.configurations[configuration] = [ca_bundle for _ in webhooks]
        return True
