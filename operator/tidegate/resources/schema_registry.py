"""The schema registry beside a Kafka cluster, and how Tidegate authenticates there."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from tidegate.resources.authentication import CertificateSource, Credential, PasswordSource
from tidegate.resources.base import ResourceModel
from tidegate.resources.rules import matching, rule

_HOST: Final = r"([A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])"

RegistryUrl = Annotated[
    str,
    matching(
        rf"https?://{_HOST}(:[0-9]{{1,5}})?(/[A-Za-z0-9._~-]{{1,100}}){{0,8}}",
        "must be the http or https URL of the registry's API, such as https://registry.kafka:8081 or "
        "https://registry.kafka/apis/ccompat/v7: without a user, a query, or a slash at its end",
        most=1024,
    ),
]


class RegistryTls(ResourceModel):
    """TLS to the registry."""

    trusted_certificates: Annotated[tuple[CertificateSource, ...], Field(max_length=1)] = ()
    """The certificate authorities to trust instead of the system's, in one Secret."""


class RegistryAuthenticationType(StrEnum):
    BASIC = "basic"


class RegistryAuthentication(ResourceModel):
    """Who Tidegate is to the registry."""

    type: RegistryAuthenticationType
    """The mechanism: basic is HTTP's basic authentication."""

    username: Credential
    """The user name."""

    password_secret: PasswordSource
    """Where the password is."""


class SchemaRegistrySpec(ResourceModel):
    """The schema registry in which producers of this cluster's topics register their schemas."""

    url: RegistryUrl
    """The URL of the registry's API, which is that of Confluent's Schema Registry; other registries offer it as well.
    Spark's driver sends the requests and follows no redirects. It asks only for the schemas of a reset's subject and of
    the records that are searched."""

    tls: RegistryTls | None = None
    """TLS to the registry, for https. Without this field the system's certificate authorities are trusted."""

    authentication: RegistryAuthentication | None = None
    """How Tidegate authenticates to the registry. Without this field it does not authenticate."""

    @rule(
        "self.url.startsWith('https://') || (!has(self.tls) && !has(self.authentication))",
        "tls and authentication need a URL with https: a password would be sent in plain text",
    )
    def _secrets_are_encrypted(self) -> bool:
        return self.url.startswith("https://") or (self.tls is None and self.authentication is None)
