"""How Tidegate encrypts its connections to the brokers and authenticates there; and what Secrets hold for it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from tidegate.resources.base import ResourceModel
from tidegate.resources.fields import ResourceName, SecretKey
from tidegate.resources.rules import cel_list, matching, rule


class CertificateSource(ResourceModel):
    """PEM certificates in a Secret of this namespace."""

    secret_name: ResourceName
    """The name of the Secret."""

    certificate: SecretKey
    """The Secret's key that holds the certificates, such as ca.crt."""


class TlsSpec(ResourceModel):
    """TLS to the brokers."""

    trusted_certificates: Annotated[tuple[CertificateSource, ...], Field(max_length=16)] = ()
    """The certificate authorities to trust instead of the system's."""


class PasswordSource(ResourceModel):
    """A password in a Secret."""

    secret_name: ResourceName
    """The name of the Secret."""

    password: SecretKey
    """The Secret's key that holds the password."""


class CertificateAndKeySource(ResourceModel):
    """A client certificate and its private key in a Secret."""

    secret_name: ResourceName
    """The name of the Secret."""

    certificate: SecretKey
    """The Secret's key that holds the certificate chain in PEM, such as tls.crt."""

    key: SecretKey
    """The Secret's key that holds the private key in PEM, such as tls.key."""


class SecretKeySource(ResourceModel):
    """One value in a Secret."""

    secret_name: ResourceName
    """The name of the Secret."""

    key: SecretKey
    """The Secret's key that holds the value."""


class AuthenticationType(StrEnum):
    SCRAM_SHA_256 = "scram-sha-256"
    SCRAM_SHA_512 = "scram-sha-512"
    PLAIN = "plain"
    TLS = "tls"
    OAUTH = "oauth"

    @property
    def has_password(self) -> bool:
        return self in (AuthenticationType.SCRAM_SHA_256, AuthenticationType.SCRAM_SHA_512, AuthenticationType.PLAIN)


Credential = Annotated[
    str,
    matching(
        r"[^\x00-\x1f\x7f]+", "must be 1 to 255 characters without control characters, such as line breaks", most=255
    ),
]

TokenEndpoint = Annotated[
    str,
    matching(
        r"https?://[^\x00-\x20\x7f]+",
        "must be the http or https URL of the token endpoint, such as https://idp.example/oauth2/token, at most 2048 "
        "characters",
        most=2048,
    ),
]

OauthScope = Annotated[
    str,
    matching(
        r"[\x20-\x7e]+", "must be scopes in printable ASCII, separated by spaces, 1 to 1024 characters", most=1024
    ),
]


_WITH_PASSWORD: Final = f"self.type in {cel_list(each for each in AuthenticationType if each.has_password)}"


class AuthenticationSpec(ResourceModel):
    """Who Tidegate is to the brokers. Which fields belong depends on ``type``."""

    type: AuthenticationType
    """The mechanism. The SCRAM types and plain take username and passwordSecret, tls takes certificateAndKey, oauth
    takes tokenEndpointUri, clientId, clientSecret and optionally scope."""

    username: Credential | None = None
    """The user name, for the SCRAM types and plain."""

    password_secret: PasswordSource | None = None
    """Where the password is, for the SCRAM types and plain."""

    certificate_and_key: CertificateAndKeySource | None = None
    """Where the client's certificate and private key are, for the type tls."""

    token_endpoint_uri: TokenEndpoint | None = None
    """The URL of the token endpoint, where tokens are requested with the client's credentials, for the type oauth."""

    client_id: Credential | None = None
    """The client's id at the token endpoint, for the type oauth."""

    client_secret: SecretKeySource | None = None
    """Where the client's secret is, for the type oauth."""

    scope: OauthScope | None = None
    """The scopes to request, separated by spaces, for the type oauth."""

    @rule(
        f"!({_WITH_PASSWORD}) || (has(self.username) && has(self.passwordSecret))",
        "types scram-sha-256, scram-sha-512 and plain need username and passwordSecret: add them",
    )
    def _password_is_there(self) -> bool:
        return not self.type.has_password or None not in (self.username, self.password_secret)

    @rule(
        f"{_WITH_PASSWORD} || (!has(self.username) && !has(self.passwordSecret))",
        "username and passwordSecret belong to the types scram-sha-256, scram-sha-512 and plain only: "
        "remove them or change the type",
    )
    def _password_belongs(self) -> bool:
        return self.type.has_password or (self.username, self.password_secret) == (None, None)

    @rule("self.type != 'tls' || has(self.certificateAndKey)", "type tls needs certificateAndKey: add it")
    def _certificate_is_there(self) -> bool:
        return self.type is not AuthenticationType.TLS or self.certificate_and_key is not None

    @rule(
        "self.type == 'tls' || !has(self.certificateAndKey)",
        "certificateAndKey belongs to type tls only: remove it or change the type",
    )
    def _certificate_belongs(self) -> bool:
        return self.type is AuthenticationType.TLS or self.certificate_and_key is None

    @rule(
        "self.type != 'oauth' || (has(self.tokenEndpointUri) && has(self.clientId) && has(self.clientSecret))",
        "type oauth needs tokenEndpointUri, clientId and clientSecret: add them",
    )
    def _client_is_there(self) -> bool:
        oauth = (self.token_endpoint_uri, self.client_id, self.client_secret)
        return self.type is not AuthenticationType.OAUTH or None not in oauth

    @rule(
        "self.type == 'oauth' || (!has(self.tokenEndpointUri) && !has(self.clientId) && !has(self.clientSecret) "
        "&& !has(self.scope))",
        "tokenEndpointUri, clientId, clientSecret and scope belong to type oauth only: remove them or change the type",
    )
    def _client_belongs(self) -> bool:
        oauth = (self.token_endpoint_uri, self.client_id, self.client_secret, self.scope)
        return self.type is AuthenticationType.OAUTH or not any(oauth)
