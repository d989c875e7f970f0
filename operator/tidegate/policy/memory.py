"""What a policy remembers beyond the operator's process: documents by part and group, in ConfigMaps that go with it.

A status is read by people and copied by every watch, so what grows with topics and groups is kept here (ADR 34).
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import zlib
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.compressed import pack, unpack
from tidegate.kube.objects import naming
from tidegate.kube.ports import (
    Conflict,
    Kube,
    KubeFailure,
    KubeUnavailable,
    NotFound,
    NotOwned,
    Object,
    label_of,
    name_of,
    namespace_of,
    uid_of,
)
from tidegate.threads import in_thread
from tidegate.versions import POLICY_MEMORY, VERSION, NewerVersion, check

_log = logging.getLogger(__name__)

PLAIN: Final = "memory.json"
PACKED: Final = "memory.json.gz.b64"
INLINE_LIMIT_BYTES: Final = 64 * 1024
"""A document up to this size stays readable text; a larger one is compressed."""
LIMIT_BYTES: Final = 1_000_000
"""A little below what the API server takes (1 MiB)."""
SHARDS: Final = 32
"""ConfigMaps of a policy for many groups, among which these are spread: together they take about 30 MB."""
_PROGRESS_MS: Final = 300_000
"""The least time between two writes of a ConfigMap in which nothing urgent has changed."""
_NAME_LIMIT: Final = 52

Document = Mapping[str, Any]
"""JSON of one part for one group. Whoever hands it over does not change it afterwards."""


class NewerMemory(KubeFailure):
    """A newer version of Tidegate has written it (``tidegate.versions``): it is left as it is."""


class TooLarge(KubeFailure):
    """More than fits into a ConfigMap."""


def document_name(body: Object, what: str) -> str:
    """``<policy>-<what>-<digest>``, the name of a ConfigMap of the policy; the digest tells namesakes apart."""
    digest = hashlib.sha256(uid_of(body).encode()).hexdigest()[:8]
    room = _NAME_LIMIT - len(what) - 10
    readable = re.sub(r"[^a-z0-9-]+", "-", name_of(body).lower())[:room].strip("-")
    return f"{readable}-{what}-{digest}"


@dataclass(slots=True)
class _Shard:
    """One ConfigMap. ``stored``: the digest of its data as it was last read or written; empty: it is not there.

    ``changed``, ``urgent``: whether it is to be written; ``written_ms``: when that was tried. ``refused``: why it is
    not what it should be.
    """

    groups: dict[str, dict[str, Document]] = field(default_factory=dict)
    stored: str = ""
    changed: bool = False
    urgent: bool = False
    written_ms: int = 0
    refused: KubeFailure | None = None

    def is_due(self, now_ms: int) -> bool:
        # A time to come was written by a clock that was ahead.
        return self.urgent or (self.changed and not 0 <= now_ms - self.written_ms < _PROGRESS_MS)


class PolicyMemory:
    """Belongs to the event loop's thread; one pass of the policy at a time uses it.

    A policy with ``groups`` has ``SHARDS`` ConfigMaps, any other one has one.
    """

    def __init__(self, kube: Kube, executor: Executor, body: Object, *, many: bool) -> None:
        self._kube, self._executor, self._body = kube, executor, naming(body)
        self._count = SHARDS if many else 1
        self._shards: dict[int, _Shard] = {}

    @property
    def trouble(self) -> str:
        """Why some of it is not kept beyond this process."""
        refused = [shard.refused for shard in self._shards.values() if shard.refused is not None]
        others = f"; {len(refused) - 1} more ConfigMap(s) could not be written either" if len(refused) > 1 else ""
        return f"{refused[0]}{others}" if refused else ""

    async def recall(self, part: str, group: str) -> Document | None:
        """What was noted last, also by an earlier process. Raises ``KubeFailure``, such as ``NewerMemory``."""
        shard = await self._loaded(self._number(group))
        return shard.groups.get(group, {}).get(part)

    async def groups(self) -> frozenset[str]:
        """All groups of which something is remembered. Raises ``KubeFailure``."""
        shards = [await self._loaded(number) for number in range(self._count)]
        return frozenset(group for shard in shards for group in shard.groups)

    async def note(self, part: str, group: str, document: Document | None, *, urgent: bool = True) -> None:
        """Remember this from now on, or nothing; it is written by :meth:`write`. Raises ``KubeFailure``.

        What is not ``urgent`` may be lost with the process, and waits until its ConfigMap was last written some minutes
        ago.
        """
        shard = await self._loaded(self._number(group))
        parts = shard.groups.get(group, {})
        if parts.get(part) == document:
            return
        kept = {**parts, part: document} if document is not None else {p: d for p, d in parts.items() if p != part}
        if kept:
            shard.groups[group] = {name: found for name, found in kept.items() if found is not None}
        else:
            shard.groups.pop(group, None)
        shard.changed = True
        shard.urgent |= urgent

    async def write(self, now_ms: int) -> None:
        """Write what is due. Raises ``KubeFailure``, once what else is due is written; what is not stays due.

        One that is too large, or not the policy's, is tried again when something urgent changes, or after some minutes:
        ``TooLarge`` and ``NotOwned`` are raised until then as well.

        Raises ``Conflict`` where somebody else has written it, as another process of the operator that begins while
        this one ends: what is in memory here, of this and of whoever noted it, is out of date then.
        """
        failures: list[KubeFailure] = []
        for number, shard in self._shards.items():
            try:
                if shard.is_due(now_ms):
                    await self._write(self._name(number), shard, now_ms)
            except KubeUnavailable:
                raise  # It is the same for all, and takes its time.
            except (TooLarge, NotOwned) as failure:
                shard.refused, shard.urgent, shard.written_ms = failure, False, now_ms
            except Conflict as failure:
                failures.append(failure)
            except KubeFailure as failure:  # such as a quota
                shard.refused = failure
        failures.sort(key=lambda failure: not isinstance(failure, Conflict))
        failures += [shard.refused for shard in self._shards.values() if shard.refused is not None]
        if failures:
            raise failures[0]

    async def _write(self, name: str, shard: _Shard, now_ms: int) -> None:
        data = encode(shard.groups)
        await in_thread(self._executor, self._replace, name, shard.stored, data)
        shard.stored, shard.written_ms, shard.refused = _digest(data), now_ms, None
        shard.changed, shard.urgent = False, False

    def _replace(self, name: str, stored: str, data: Mapping[str, str]) -> None:
        """Of what was read last and nothing else, also where somebody writes it in this moment."""
        conflict = Conflict(f"ConfigMap {namespace_of(self._body)}/{name} was written by somebody else")

        def change(there: Mapping[str, str]) -> Mapping[str, str]:
            if _digest(there) != stored:
                raise conflict
            return data

        try:
            self._kube.change_config_map(self._body, name, change)
        except NotFound:
            if stored:
                raise conflict from None
            self._kube.put_config_map(self._body, name, data)

    async def _loaded(self, number: int) -> _Shard:
        known = self._shards.get(number)
        if known is not None:
            return known
        name = self._name(number)
        data: Mapping[str, str] = {}
        groups: dict[str, dict[str, Document]] = {}
        try:
            data = await self._read(name)
            groups = decode(data, f"ConfigMap {namespace_of(self._body)}/{name}") if data else {}
            groups = {group: parts for group, parts in groups.items() if self._is_kept_in(number, group)}
        except NewerVersion as newer:
            raise NewerMemory(str(newer)) from newer
        except NotOwned as error:
            _log.warning("%s: %s; the operator ignores its content", label_of(self._body), error)
        except ValueError as error:
            _log.warning("%s: ConfigMap %s: %s; the operator overwrites it", label_of(self._body), name, error)
        return self._shards.setdefault(number, _Shard(groups, _digest(data)))

    async def _read(self, name: str) -> Mapping[str, str]:
        """Its data; nothing where there is none. Raises ``NotOwned``."""
        try:
            return await in_thread(self._executor, self._kube.own_config_map, self._body, name)
        except NotFound:
            return {}

    def _is_kept_in(self, number: int, group: str) -> bool:
        """Whether a ConfigMap may say something of this group. Somebody may have edited it: what is found in a place
        where nobody looks for it could not be forgotten, and Kafka can't be asked for half of a pair of surrogates."""
        try:
            return bool(group) and self._number(group) == number
        except UnicodeEncodeError:
            return False

    def _number(self, group: str) -> int:
        return zlib.crc32(group.encode()) % self._count

    def _name(self, number: int) -> str:
        name = document_name(self._body, "memory")
        return name if self._count == 1 else f"{name}-{number}"


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """What a policy remembers of one group."""

    memory: PolicyMemory
    group: str

    async def recall(self, part: str) -> Document | None:
        """See ``PolicyMemory.recall``."""
        return await self.memory.recall(part, self.group)

    async def note(self, part: str, document: Document | None, *, urgent: bool = True) -> None:
        """See ``PolicyMemory.note``."""
        await self.memory.note(part, self.group, document, urgent=urgent)


def _digest(data: Mapping[str, str]) -> str:
    text = data.get(PLAIN, data.get(PACKED, ""))
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


# --- the ConfigMap's data ---------------------------------------------------------------------------------------------


def encode(groups: Mapping[str, Mapping[str, Document]]) -> dict[str, str]:
    """One line a group, or compressed where that is long. Raises ``TooLarge``."""
    lines = ",\n".join(f"{json.dumps(group)}: {json.dumps(parts)}" for group, parts in sorted(groups.items()))
    text = f'{{"{VERSION}": {POLICY_MEMORY.version}, "groups": {{\n{lines}\n}}}}\n'
    raw = text.encode()
    if len(raw) <= INLINE_LIMIT_BYTES:
        return {PLAIN: text}
    packed = pack(raw)
    if len(packed) > LIMIT_BYTES:
        # Without its size, which changes all the time: it is told once.
        largest = max(groups, key=lambda group: len(json.dumps(groups[group])))
        raise TooLarge(
            f"what the policy remembers of {len(groups):,} group(s) does not fit into a ConfigMap ({LIMIT_BYTES:,} "
            f"bytes), and most of it belongs to group {largest}: narrow topics or groups"
        )
    return {PACKED: packed}


def decode(data: Mapping[str, str], where: str = "it") -> dict[str, dict[str, Document]]:
    """What :func:`encode` wrote. Raises ``NewerVersion``, and ``ValueError`` for anything else."""
    try:
        text = data[PLAIN] if PLAIN in data else unpack(data[PACKED])
        document = json.loads(text)
        check(POLICY_MEMORY, document.get(VERSION), where)
        return {
            str(group): {str(part): dict(found) for part, found in parts.items()}
            for group, parts in document["groups"].items()
        }
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"its content is not what a policy remembers: {error!r}") from error
