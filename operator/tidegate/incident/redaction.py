"""What leaves a cluster in a support archive, without what is nobody else's business. Pure.

Specs are hostile, and people put credentials where they do not belong: into properties, annotations, reasons and logs.
So values are left out by the place that they stand in, and what looks like a credential is left out of every text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

REDACTED: Final = "(redacted)"

_NAMES: Final = (
    r"password|passwd|passphrase|pwd|secret|token|credential|jaas|sasl|private|api.?key|access.?key|account.?key|ssl.key"
    r"|authorization|cookie|user.info"
)
_SECRETIVE: Final = re.compile(_NAMES, re.IGNORECASE)
"""Members, at any depth, of which only the names are kept."""

_BY_PLACE: Final = frozenset({"annotations", "properties", "sparkConf", "record", "env", "managedFields"})
"""Members that may hold anything: settings of a client, conditions on records, what other tools note."""

# Each quantifier is bounded, or is tried from one place only: a text may be made to be slow.
_IN_TEXT: Final = (
    re.compile(r"-----BEGIN [A-Z ]{1,40}-----.*?(-----END [A-Z ]{1,40}-----|\Z)", re.DOTALL),
    re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=_-]*"),  # the same in base64
    re.compile(r"LoginModule\b[^\n]*", re.IGNORECASE),
    re.compile(r"\b(bearer|basic|apikey|token)\s{1,8}[a-z0-9+/=._~-]{8,}", re.IGNORECASE),
    re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]+[.][A-Za-z0-9_-]+([.][A-Za-z0-9_-]*)?"),
    re.compile(r"(?<=://)[^\s\"'<>]{1,512}(?=@)"),
    re.compile(rf"(?<=--)[\w.-]{{0,64}}(?:{_NAMES})[\w.-]{{0,64}}[ \t]{{1,8}}[^\s-]\S*", re.IGNORECASE),
)
_ASSIGNED: Final = re.compile(
    rf"((?:{_NAMES})[\w.-]{{0,64}}[\\\"']{{0,8}}\s{{0,8}}(?:=>|[=:])\s{{0,8}})"
    r"(\\\"(?:[^\"\\\n]|\\(?!\"))*(?:\\\")?|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?|[^\s,;}\]]+)",
    re.IGNORECASE,
)


def redacted(body: Mapping[str, Any]) -> dict[str, Any]:
    """A resource as JSON, or anything like it."""
    named = str(body.get("name", body.get("key", "")))
    return {
        text_redacted(str(name)): REDACTED
        if name == "value" and _SECRETIVE.search(named)
        else _member(str(name), value)
        for name, value in body.items()
    }


def text_redacted(text: str) -> str:
    """A text without private keys, tokens, logins and what is assigned to a name that speaks of one."""
    for pattern in _IN_TEXT:
        text = pattern.sub(REDACTED, text)
    return _ASSIGNED.sub(rf"\1{REDACTED}", text)


def _member(name: str, value: Any) -> Any:
    if name == "authentication" and isinstance(value, Mapping):
        return {"type": text_redacted(str(value.get("type", ""))), **dict.fromkeys(value.keys() - {"type"}, REDACTED)}
    if name in _BY_PLACE or _SECRETIVE.search(name):
        return _names_of(value)
    return _value(value)


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return redacted(value)
    if isinstance(value, list | tuple):
        return [_value(each) for each in value]
    return text_redacted(value) if isinstance(value, str) else value


def _names_of(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {text_redacted(str(name)): REDACTED for name in value}
    return REDACTED
