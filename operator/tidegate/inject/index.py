"""What is known of each namespace's policies and connections when a pod comes by: from memory, no request is made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from tidegate.connection.sharing import allowed_from
from tidegate.inject.eligibility import Surroundings
from tidegate.inject.environment import NamedPolicy, agent_topics
from tidegate.kafka.names import is_allowed
from tidegate.kube.ports import Object, connection_named, name_of, namespace_of, uid_of
from tidegate.resources.base import InvalidResource, parse_spec
from tidegate.resources.connection import AllowSpec, KafkaConnectionSpec
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
        connections = {
            (namespace_of(body), name_of(body)): body for body in _there(first_connections, self._connections())
        }
        topics = {
            name: agent_topics(spec)
            for (of, name), body in connections.items()
            if of == namespace and (spec := self._acting(body)) is not None
        }
        policies: list[NamedPolicy] = []
        for body in _of(namespace, first_policies, self._policies()):
            wanted = self._spec(OffsetResetPolicySpec, body)
            found = connections.get(connection_named(body))
            if found is None or not isinstance(wanted, OffsetResetPolicySpec):
                continue
            acting = self._acting(found)
            if acting is not None and _serves(acting, found, wanted, namespace):
                policies.append(NamedPolicy(name_of(body), wanted, agent_topics(acting), connection_named(body)))
        return Surroundings(tuple(sorted(policies, key=lambda policy: policy.name)), topics)

    def _acting(self, connection: Object) -> KafkaConnectionSpec | None:
        """Of one that can be read and does not only observe."""
        spec = self._spec(KafkaConnectionSpec, connection)
        return spec if isinstance(spec, KafkaConnectionSpec) and not (spec.observe or self._observe) else None

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


def _serves(spec: KafkaConnectionSpec, connection: Object, policy: OffsetResetPolicySpec, namespace: str) -> bool:
    """Whether a policy of the namespace is told the connection's topics: of another namespace's only for groups that it
    may touch through it."""
    own = namespace_of(connection)
    allow = allowed_from(spec.allow or AllowSpec(), own, namespace)
    if allow is None or own == namespace:
        return allow is not None
    return policy.group is None or is_allowed(policy.group, allow.groups)


def _of(namespace: str, first: Mapping[str, Object], newest: Iterable[Object]) -> list[Object]:
    """The namespace's objects that are not on their way out."""
    return [body for body in _there(first, newest) if namespace_of(body) == namespace]


def _there(first: Mapping[str, Object], newest: Iterable[Object]) -> list[Object]:
    bodies = {**first, **{uid_of(body): body for body in newest}}
    return [body for body in bodies.values() if not body["metadata"].get("deletionTimestamp")]
