"""Kafka Connect: how the workers of a cluster are reached, by their REST interface, and which connector is meant."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import Field

from tidegate.resources.authentication import CertificateSource, Credential, PasswordSource
from tidegate.resources.base import ResourceModel
from tidegate.resources.fields import ResourceName
from tidegate.resources.rules import matching, rule, unique

_PORT: Final = r"(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
_HOST: Final = r"([A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])"
_PATH: Final = r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,99}){0,8}"

ConnectUrl = Annotated[
    str,
    matching(
        rf"https?://{_HOST}{_PORT}{_PATH}",
        "must be the http or https URL of the workers, such as https://connect.kafka:8083, without credentials, a "
        "query or a slash at the end, at most 1024 characters",
        most=1024,
    ),
]

ConnectorName = Annotated[
    str,
    matching(
        r"[A-Za-z0-9_-][A-Za-z0-9._-]*",
        "must be the name of a connector: letters, digits, '.', '_' and '-', at most 200 characters, not "
        "beginning with '.'",
        most=200,
    ),
]


class ConnectAuthenticationSpec(ResourceModel):
    """Who Tidegate is to the workers, by HTTP's basic authentication."""

    username: Annotated[
        Credential,
        matching(r"[^:]+", "must not have a colon, which ends the user name in HTTP's basic authentication", most=255),
    ]
    """The user name."""

    password_secret: PasswordSource
    """Where the password is."""


class ConnectClusterSpec(ResourceModel):
    """One cluster of Connect workers."""

    name: ResourceName
    """The name by which ConsumerGroupPauses refer to this cluster."""

    url: ConnectUrl
    """The URL of the workers' REST interface, such as https://connect.kafka:8083. Tidegate sends requests to no other
    address, and follows no redirects."""

    trusted_certificates: Annotated[tuple[CertificateSource, ...], Field(max_length=16)] = ()
    """The certificate authorities to trust instead of the system's, for https."""

    authentication: ConnectAuthenticationSpec | None = None
    """How Tidegate authenticates to the workers. Without this field it does not authenticate."""

    @rule(
        "!has(self.authentication) || self.url.startsWith('https://')",
        "authentication needs https: over http the password could be read on its way",
    )
    def _password_is_encrypted(self) -> bool:
        return self.authentication is None or re.match("https://", self.url) is not None

    @rule(
        "!has(self.trustedCertificates) || self.trustedCertificates.size() == 0 || self.url.startsWith('https://')",
        "trustedCertificates need https: change the url",
    )
    def _certificates_are_used(self) -> bool:
        return not self.trusted_certificates or self.url.startswith("https://")


ConnectClusters = Annotated[
    tuple[ConnectClusterSpec, ...],
    Field(max_length=16),
    unique("must name each Connect cluster once: remove the repeated entry", "name"),
]


class ConnectorRef(ResourceModel):
    """One sink connector."""

    cluster: ResourceName
    """The name of the Connect cluster in spec.connect of the KafkaConnection."""

    name: ConnectorName
    """The connector's name."""

    def __str__(self) -> str:
        return f"connector {self.name} of Connect cluster {self.cluster}"
