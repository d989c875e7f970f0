"""Why a value can't be decoded."""

from __future__ import annotations

from enum import StrEnum


class Flaw(StrEnum):
    """Why a value can't be decoded."""

    MALFORMED = "it is not as its schema says"
    NO_HEAD = "it does not begin as the wire format of schema registries does"
    TOO_LARGE = "as its schema has it, it would take too much memory"
    UNKNOWN_SCHEMA = "the registry has no schema of its id, or none that may be used"
    NOT_ASKED = "its schema is one of more than a search asks the registry for"
    OTHER_SCHEMA = "it was written by a schema that can't be read as the one given"
