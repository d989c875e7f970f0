"""The settings of the Kafka client that a ``KafkaConnection`` may carry in ``spec.properties``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field

from tidegate.resources.rules import Facet, cel_list, cel_matches, described, must

_CHOICES: Final = {
    "socket.keepalive.enable": ("true", "false"),
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "broker.address.family": ("any", "v4", "v6"),
    "ssl.endpoint.identification.algorithm": ("https", "none"),
}
_MILLISECONDS: Final = (
    "broker.address.ttl",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.ms",
    "socket.timeout.ms",
)

ALLOWED_PROPERTIES: Final = tuple(sorted((*_CHOICES, *_MILLISECONDS, "client.id", "client.rack")))
"""The client settings that ``spec.properties`` may carry: none of them can redirect, unmask or weaken a connection's
authentication. ``ssl.endpoint.identification.algorithm: none`` is there for brokers whose certificate lacks their
name; whoever may write the connection may also change its servers."""


def _times_are_milliseconds(properties: Mapping[str, str]) -> bool:
    return all(re.fullmatch(_TIME, value) for name, value in properties.items() if name in _MILLISECONDS)


def _choices_are_known(properties: Mapping[str, str]) -> bool:
    return all(value in _CHOICES[name] for name, value in properties.items() if name in _CHOICES)


_TIME: Final = "[1-9][0-9]{0,6}"

Properties = Annotated[
    dict[str, Annotated[str, Facet(keywords={"maxLength": 255}), described("The setting's value.")]],
    Field(max_length=32),
    must(
        lambda properties: properties.keys() <= set(ALLOWED_PROPERTIES),
        f"self.all(name, name in {cel_list(ALLOWED_PROPERTIES)})",
        f"only these client settings can be given: {', '.join(ALLOWED_PROPERTIES)}; remove the others (servers, TLS "
        "and authentication have their own fields)",
    ),
    must(
        _times_are_milliseconds,
        f"self.all(name, !(name in {cel_list(_MILLISECONDS)}) || {cel_matches('self[name]', _TIME)})",
        'times must be whole milliseconds from 1 to 9999999, in quotes, such as "20000"',
    ),
    must(
        _choices_are_known,
        " && ".join(
            f"(!('{name}' in self) || self['{name}'] in {cel_list(choices)})" for name, choices in _CHOICES.items()
        ),
        "; ".join(f"{name} must be {', '.join(choices)}" for name, choices in _CHOICES.items()) + "; each in quotes",
    ),
    must(
        lambda properties: all(1 <= len(value) <= 255 for value in properties.values()),
        "self.all(name, self[name] != '')",
        "values must have 1 to 255 characters",
    ),
]
