"""What leaves a cluster in a support archive, without what is nobody else's business. Pure.

Specs are hostile, and people put credentials where they do not belong: into properties, annotations, reasons and logs.
So values are left out by the place that they stand in, and what looks like a credential is left out of every text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
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

_ESCAPE: Final = (
    r"(?:[nrtfv]|x(?:0[9a-d]|1[c-f]|20|85|a0)"
    r"|u(?:00(?:0[9a-d]|1[c-f]|20|85|a0)|1680|20(?:0[0-9a]|2[89f]|5f)|3000))"
)
_SPACE: Final = rf"(?:\s|\\{{1,16}}{_ESCAPE})"
"""White space, also as texts have it that were quoted, at whatever depth: ``\n``, ``\\t``, ``\x0b``, ``\u2028``."""

_AFTER_ESCAPE: Final = r"(?<=\\[nrtfv])|(?<=\\x[0-9a-f]{2})|(?<=\\u[0-9a-f]{4})"
"""Where a word begins although a letter stands before it."""

# Each quantifier is bounded, or is tried from one place only: a text may be made to be slow.
_IN_TEXT: Final = (
    re.compile(r"-----BEGIN [A-Z ]{1,40}-----.*?(-----END [A-Z ]{1,40}-----|\Z)", re.DOTALL),
    re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=_-]*"),  # the same in base64
    re.compile(r"LoginModule\b[^\n]*", re.IGNORECASE),
    re.compile(
        rf"(?:\b|{_AFTER_ESCAPE})(bearer|basic|apikey|token){_SPACE}{{1,64}}+[a-z0-9+/=._~-]{{8,}}", re.IGNORECASE
    ),
    re.compile(rf"(?:(?<![A-Za-z0-9_-])|{_AFTER_ESCAPE})eyJ[A-Za-z0-9_-]+[.][A-Za-z0-9_-]+([.][A-Za-z0-9_-]*)?"),
    re.compile(r"(?<=://)[^\s\"'<>]{1,512}(?=@)"),
)

_SPACES: Final = rf"{_SPACE}{{0,256}}+"
_BEFORE_VALUE: Final = re.compile(
    rf"(?:{_NAMES})[\w.-]{{0,64}}[\\\"']{{0,16}}{_SPACES}(?:=>|[=:]){_SPACES}(?:[|>][-+0-9]{{0,2}}{_SPACE}{_SPACES})?"
    rf"|(?P<option>(?<=--)[\w.-]{{0,64}}(?:{_NAMES})[\w.-]{{0,64}}{_SPACE}{_SPACES}(?!-))",
    re.IGNORECASE,
)
"""What speaks of a credential, and ``=``, ``=>`` or ``:``, or after it a block of YAML; or an option of a command."""

_WORD: Final = re.compile(r"[^\s,;}\]]*")
_OPTION: Final = re.compile(r"[^\s]*")
_OPENING: Final = re.compile(r"[bru]{0,2}(\\{0,64})([\"'])", re.IGNORECASE)
_IN_QUOTES: Final = re.compile(r"\\+[\"']?|[\"']|\n(?:\d{4}-\d\d-\d\d )?")
_MOST_LINES: Final = 4
"""That a value in quotes may have."""


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
    return "".join(_without_values(text))


def log_redacted(log: str) -> str:
    """A log in either format of :mod:`tidegate.service.logs`. An object in a line stays one: what is in it is looked at
    as it was before JSON escaped it. What is none is a text, and may be several lines, such as a key."""
    told: list[str] = []
    lines: list[str] = []
    for line in log.split("\n"):
        is_object = _object_redacted(line)
        if is_object is None:
            lines.append(line)
            continue
        told += [text_redacted("\n".join(lines))] if lines else []
        told.append(is_object)
        lines = []
    return "\n".join([*told, text_redacted("\n".join(lines))] if lines else told)


def _object_redacted(line: str) -> str | None:
    """``None``: it is no object, or too deep to be looked into."""
    if not line.startswith("{"):
        return None
    try:
        return json.dumps(redacted(json.loads(line)))
    except (ValueError, RecursionError):
        return None


def _without_values(text: str) -> Iterator[str]:
    done = 0
    while found := _BEFORE_VALUE.search(text, done):
        begin = found.end()
        yield text[done:begin]
        done = _end_of_value(text, begin, _WORD if found["option"] is None else _OPTION)
        if done > begin:
            yield REDACTED
    yield text[done:]


def _end_of_value(text: str, begin: int, bare: re.Pattern[str]) -> int:
    """``bare``: what a value is without quotes."""
    opening = _OPENING.match(text, begin)
    if opening is None:
        word = bare.match(text, begin)
        return word.end() if word is not None else begin
    # In a text that was quoted once, a quote has one backslash, quoted twice three, and so on. A quote that is part of
    # the value has more, and one with fewer ends what is around the value.
    depth, lines, end_of_line = len(opening[1]), 0, -1
    for found in _IN_QUOTES.finditer(text, opening.end()):
        if found[0][0] == "\n":
            lines, end_of_line = lines + 1, found.start() if end_of_line < 0 else end_of_line
            if lines == _MOST_LINES or len(found[0]) > 1:
                break  # the next record of a log: the value has no end
        elif found[0][-1] == opening[2]:
            backslashes = len(found[0]) - 1
            if backslashes < depth:
                return found.start()
            if backslashes % (2 * (depth + 1)) == depth:
                return found.end()
    return end_of_line if end_of_line >= 0 else len(text)


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
