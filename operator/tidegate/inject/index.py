"""What is known of each namespace's policies and connections when a pod comes by: from memory, no request is made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from tidegate.inject.eligibility import Surroundings
from tidegate.inject.environment import NamedPolicy, agent_topics
from tidegate.kube.ports import Object, name_of, namespace_of, uid_of
from tidegate.resources.base import InvalidResource, parse_spec
from tidegate.resources.connection import KafkaConnectionSpec
from tidegate.resources.policy import OffsetResetPolicySpec

_PARSED: Final = 10_000
"""Above so many remembered specs all are forgotten: those in use are read again."""

Objects = Callable[[], Iterable[Object]]


class PolicyIndex:
    """``policies`` and ``connections`` give what their watches last told. ``namespaces``: those served; empty: all.

    A namespace is unknown until everything was listed once: a pod that came by before would be left alone for no reason
    of its own.
    """

    def __init__(
        self, policies: Objects, connections: Objects, namespaces: Collection[str] = (), *, observe: bool = False
    ) -> None:
        """``observe``: every connection is one with ``spec.observe``, for whose consumers nothing is injected."""
        self._policies, self._connections, self._namespaces = policies, connections, frozenset(namespaces)
        self._observe = observe
        self._listed: tuple[Mapping[str, Object], Mapping[str, Object]] | None = None
        self._parsed: dict[tuple[str, object], OffsetResetPolicySpec | KafkaConnectionSpec | None] = {}

    @property
    def known(self) -> bool:
        return self._listed is not None

    def listed(self, policies: Iterable[Object], connections: Iterable[Object]) -> None:
        """A listing of all. The first one serves until the watches have begun; from the second on they alone count."""
        if self._listed is None:
            self._listed = ({uid_of(b): b for b in policies}, {uid_of(b): b for b in connections})
        else:
            self._listed = ({}, {})

    def around(self, namespace: str) -> Surroundings | None:
        """``None`` for a namespace that is not served, or not known yet."""
        if self._listed is None or (self._namespaces and namespace not in self._namespaces):
            return None
        first_policies, first_connections = self._listed
        topics = {
            name_of(body): agent_topics(spec)
            for body in _of(namespace, first_connections, self._connections())
            if isinstance(spec := self._spec(KafkaConnectionSpec, body), KafkaConnectionSpec)
            and not (spec.observe or self._observe)
        }
        policies = [
            NamedPolicy(name_of(body), spec, topics[spec.connection_ref.name])
            for body in _of(namespace, first_policies, self._policies())
            if isinstance(spec := self._spec(OffsetResetPolicySpec, body), OffsetResetPolicySpec)
            and spec.connection_ref.name in topics
        ]
        return Surroundings(tuple(sorted(policies, key=lambda policy: policy.name)), topics)

    def policy(self, namespace: str, name: str) -> Object | None:
        """The object of a policy, for what is told about it."""
        return next((b for b in _of(namespace, {}, self._policies()) if name_of(b) == name), None)

    def _spec(
        self, model: type[OffsetResetPolicySpec | KafkaConnectionSpec], body: Object
    ) -> OffsetResetPolicySpec | KafkaConnectionSpec | None:
        key = (uid_of(body), body["metadata"].get("generation"))
        if key not in self._parsed:
            if len(self._parsed) >= _PARSED:
                self._parsed.clear()
            try:
                self._parsed[key] = parse_spec(model, body)
            except InvalidResource:
                self._parsed[key] = None
        return self._parsed[key]


def _of(namespace: str, first: Mapping[str, Object], newest: Iterable[Object]) -> list[Object]:
    """The namespace's objects that are not on their way out."""
    bodies = {**first, **{uid_of(body): body for body in newest}}
    return [
        body
        for body in bodies.values()
        if namespace_of(body) == namespace and not body["metadata"].get("deletionTimestamp")
    ]
