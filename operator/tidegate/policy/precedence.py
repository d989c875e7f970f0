"""Which of several policies keeps something for a group: the most specific one. Pure.

An exact name goes before a pattern, a longer literal prefix (what a pattern has before its first ``*``) before a
shorter one; then the older policy goes first by its creationTimestamp, then by its name. Policies compete where they
ask for the same part through connections to the same cluster in one namespace; one that asks for a reset only does not,
and neither does one for a group that its connection does not allow: it does nothing for that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from tidegate.kafka.names import is_allowed, is_pattern, matches
from tidegate.kube.ports import Object, connection_named, name_of, namespace_of, uid_of
from tidegate.resources.policy import OffsetResetPolicySpec

DISCOVERY: Final = "discovery"
"""``spec.discovery`` and ``spec.latest``, which say together where new partitions begin."""
RETENTION: Final = "retention"
STUCK_RECORDS: Final = "stuckRecords"

Rank = tuple[bool, int, str, str]
"""Smaller is more specific."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy that keeps something. ``connection``: its namespace and name; ``entries``: names and patterns;
    ``parts``: what it asks for."""

    uid: str
    namespace: str
    name: str
    created: str
    connection: tuple[str, str]
    entries: tuple[str, ...]
    exclude: tuple[str, ...]
    parts: frozenset[str]

    def selects(self, group: str) -> bool:
        return any(matches(group, entry) for entry in self.entries) and not is_allowed(group, self.exclude)

    def rank(self, group: str) -> Rank:
        """Of a group that it selects."""
        fits = [entry for entry in self.entries if matches(group, entry)]
        inexact, prefix = min((is_pattern(entry), -_literal_prefix(entry)) for entry in fits)
        return inexact, prefix, self.created, self.name


def contender(body: Object, spec: OffsetResetPolicySpec) -> Contender:
    parts = {
        DISCOVERY: spec.discovery or spec.latest,
        RETENTION: spec.retention,
        STUCK_RECORDS: spec.stuck_records,
    }
    return Contender(
        uid=uid_of(body),
        namespace=namespace_of(body),
        name=name_of(body),
        created=str(body["metadata"].get("creationTimestamp", "")),
        connection=connection_named(body),
        entries=spec.group_patterns,
        exclude=spec.exclude or (),
        parts=frozenset(part for part, asked in parts.items() if asked is not None),
    )


def _literal_prefix(entry: str) -> int:
    return len(entry.split("*", 1)[0])


class Contenders:
    """All policies that keep something, by uid. ``cluster_of``: the cluster of a connection by namespace and name.
    ``allows``: whether policies of a namespace may touch a group through a connection."""

    def __init__(
        self,
        cluster_of: Callable[[str, str], str],
        allows: Callable[[str, tuple[str, str], str], bool] = lambda _namespace, _connection, _group: True,
    ) -> None:
        self._cluster_of = cluster_of
        self._allows = allows
        self._all: dict[str, Contender] = {}
        self._by_name: dict[tuple[str, str], set[str]] = {}
        """By namespace and exact name of a group, the uids of those that name it."""
        self._with_patterns: set[str] = set()

    def put(self, one: Contender) -> None:
        if self._all.get(one.uid) == one:
            return
        self.drop(one.uid)
        if not one.parts:
            return
        self._all[one.uid] = one
        for entry in one.entries:
            if is_pattern(entry):
                self._with_patterns.add(one.uid)
            else:
                self._by_name.setdefault((one.namespace, entry), set()).add(one.uid)

    def drop(self, uid: str) -> None:
        before = self._all.pop(uid, None)
        if before is None:
            return
        self._with_patterns.discard(uid)
        for entry in before.entries:
            self._by_name.get((before.namespace, entry), set()).discard(uid)

    def retain(self, uids: Collection[str]) -> None:
        """Drop all others."""
        for uid in self._all.keys() - set(uids):
            self.drop(uid)

    def ranked(self, one: Contender, group: str, part: str) -> tuple[Contender, ...]:
        """Those that keep this part of the group beside ``one``, and itself; the most specific first."""
        found = {c.uid: c for c in self._rivals(one, group, part)} | {one.uid: one}
        return tuple(sorted(found.values(), key=lambda c: c.rank(group)))

    def _rivals(self, one: Contender, group: str, part: str) -> Iterator[Contender]:
        cluster = self._cluster_of(*one.connection)
        for uid in self._with_patterns | self._by_name.get((one.namespace, group), set()):
            other = self._all[uid]
            if other.namespace != one.namespace or part not in other.parts or not other.selects(group):
                continue
            # Through the same connection, what is not allowed to one of them is not to the other.
            if other.connection == one.connection or (
                self._cluster_of(*other.connection) == cluster
                and self._allows(other.namespace, other.connection, group)
            ):
                yield other
