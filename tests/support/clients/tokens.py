"""OAuth tokens that nobody has signed, as the brokers of tests take them, from providers as applications have them."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from typing import Any, Final

PROVIDER: Final = "sasl_oauth_token_provider"
LIFETIME_S: Final = 3600


def unsigned_token(user: str) -> str:
    """A JSON web token (RFC 7519) whose ``sub`` is the user."""
    now = int(time.time())
    parts: list[dict[str, Any]] = [{"alg": "none"}, {"sub": user, "iat": now, "exp": now + LIFETIME_S}]
    return "".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") + "." for part in parts)


def with_tokens(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    """With a provider where a consumer's arguments have the name of its user: JSON has no objects to give."""
    user = config.get(PROVIDER)
    if user is None:
        return config
    return {**config, PROVIDER: _of_aiokafka(user) if kind == "aiokafka" else _of_kafka_python(user)}


def _of_aiokafka(user: str) -> Any:
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            await asyncio.sleep(0)  # one that asks a server lets the loop go on, too
            return unsigned_token(user)

    return Provider()


def _of_kafka_python(user: str) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return unsigned_token(user)

    return Provider()
