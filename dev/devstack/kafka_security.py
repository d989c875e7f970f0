"""The secured listeners of a test cluster: SASL_SSL (SCRAM, PLAIN, OAUTHBEARER) and SSL (client certificates)."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from devstack.certificates import Certificate, CertificateAuthority

ADMIN_USER = "admin"
CLIENT_USER = "tidegate"

_OAUTH = "org.apache.kafka.common.security.oauthbearer"


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """How to reach a cluster started with ``security="sasl_ssl"``.

    `username` and `admin_username` authenticate by SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN at `sasl_ssl_bootstrap`;
    OAUTHBEARER there takes any unsigned token, its ``sub`` being the user. `client` is the certificate for
    `ssl_bootstrap`; its principal is ``User:CN=tidegate``. With ``authorizer=True`` ``User:admin`` and the plaintext
    listener may do everything, and everybody else what ACLs allow.
    """

    ca: Path
    client: Certificate
    server: Path
    username: str
    password: str
    admin_username: str
    admin_password: str
    sasl_ssl_bootstrap: str
    ssl_bootstrap: str

    @property
    def scram_credentials(self) -> tuple[str, ...]:
        """The users, as the storage format's ``--add-scram`` wants them."""
        return tuple(
            f"{mechanism}=[name={user},password={password}]"
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for user, password in self._passwords.items()
        )

    @property
    def _passwords(self) -> Mapping[str, str]:
        return {self.username: self.password, self.admin_username: self.admin_password}

    def broker_properties(self, *, authorizer: bool) -> dict[str, str]:
        """The listeners' settings, which are the same on each broker."""
        users = " ".join(f'user_{user}="{password}"' for user, password in self._passwords.items())
        module = "org.apache.kafka.common.security"
        properties = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule required {users};",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
                f'{_OAUTH}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
            ),
            "listener.name.sasl_ssl.oauthbearer.sasl.login.callback.handler.class": (
                f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
            ),
            "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": (
                f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
            ),
            "listener.name.sasl_ssl.ssl.client.auth": "requested",
            "listener.name.ssl.ssl.client.auth": "required",
        }
        for listener in ("sasl_ssl", "ssl"):
            properties |= {
                f"listener.name.{listener}.ssl.keystore.type": "PEM",
                f"listener.name.{listener}.ssl.keystore.location": str(self.server),
                f"listener.name.{listener}.ssl.truststore.type": "PEM",
                f"listener.name.{listener}.ssl.truststore.location": str(self.ca),
            }
        if authorizer:
            properties |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:{self.admin_username};User:ANONYMOUS",
            }
        return properties


def create_security(folder: Path, sasl_ssl_bootstrap: str, ssl_bootstrap: str, host: str) -> KafkaSecurity:
    """Certificates, for `localhost` and the IP address `host`, and passwords of one run, in its secrets folder."""
    authority = CertificateAuthority.create(folder)
    server = authority.issue("kafka", alternative_names=f"DNS:localhost,IP:{host}")
    # Kafka's PEM key store is one file: key, then chain.
    store = folder / "kafka.pem"
    store.touch(mode=0o600)
    store.write_text(server.key.read_text() + server.certificate.read_text())
    return KafkaSecurity(
        ca=authority.certificate,
        client=authority.issue(CLIENT_USER),
        server=store,
        username=CLIENT_USER,
        password=secrets.token_hex(12),
        admin_username=ADMIN_USER,
        admin_password=secrets.token_hex(12),
        sasl_ssl_bootstrap=sasl_ssl_bootstrap,
        ssl_bootstrap=ssl_bootstrap,
    )
