"""What a KafkaConnection allows from which namespace."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fake_kafka import FakeClock, FakeKafka
from support.live import live_of
from tidegate.connection.live import LiveConnections
from tidegate.connection.sharing import allowed_from, is_foreign, not_usable
from tidegate.kafka.errors import Refused
from tidegate.kafka.names import covers, is_allowed, narrowed
from tidegate.kube.ports import Object
from tidegate.resources.connection import AllowedNamespace, AllowSpec


def resource(user: str, **named: str) -> Object:
    return {"metadata": {"namespace": user, "name": "x"}, "spec": {"connectionRef": {"name": "kafka", **named}}}


# --- lists within lists -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "within", "both"),
    [
        (["a-*"], ["*"], ("a-*",)),
        (["*"], ["a-*", "b"], ("a-*", "b")),
        (["a-x", "b-x"], ["a-*"], ("a-x",)),
        (["a-*"], ["a-b-*"], ("a-b-*",)),
        (["a-*"], ["b-*"], ()),
        (["*-x"], ["a-*"], ("a-*-x", "a-x")),
        (["aba*"], ["*bab"], ("aba*bab", "abab")),
        (["a*b*c"], ["a*c"], ("a*b*c",)),
        (["a*b*"], ["*c*d"], ()),
        (["a"], ["b"], ()),
        (["a", "a"], ["*", "a"], ("a",)),
    ],
)
def test_what_both_lists_allow(patterns: list[str], within: list[str], both: tuple[str, ...]) -> None:
    assert narrowed(patterns, within) == both


ONE_STAR = st.text("ab*", max_size=5).filter(lambda text: text.count("*") <= 1)
ANY = st.text("ab*", max_size=6)
NAMES = ["".join(letters) for length in range(8) for letters in itertools.product("ab", repeat=length)]


@given(st.lists(ANY, max_size=3), st.lists(ANY, max_size=3))
def test_nothing_is_allowed_that_one_of_the_lists_does_not_allow(patterns: list[str], within: list[str]) -> None:
    both = narrowed(patterns, within)

    assert not [n for n in NAMES if is_allowed(n, both) and not (is_allowed(n, patterns) and is_allowed(n, within))]


@given(st.lists(ONE_STAR, max_size=3), st.lists(ONE_STAR, max_size=3))
def test_all_is_allowed_that_both_lists_allow(patterns: list[str], within: list[str]) -> None:
    both = narrowed(patterns, within)

    assert not [n for n in NAMES if is_allowed(n, patterns) and is_allowed(n, within) and not is_allowed(n, both)]


@pytest.mark.parametrize(
    ("pattern", "other", "does"),
    [("a*", "ab*", True), ("a*", "*", False), ("*", "a*b", True), ("a*b", "a*", False), ("a*b", "axb", True)],
)
def test_one_pattern_covers_another(pattern: str, other: str, does: bool) -> None:
    assert covers(pattern, other) is does


# --- who may ----------------------------------------------------------------------------------------------------------

ALLOW = AllowSpec(
    groups=("prod-*",),
    topics=("orders", "a.*"),
    claims=("disk",),
    secrets=("s3",),
    dead_letter_topics=("orders.DLT",),
    namespaces=(
        AllowedNamespace(name="team-a", groups=("prod-a-*",), topics=("a.*", "b.*")),
        AllowedNamespace(name="b"),
    ),
)


def test_the_own_namespace_has_all_of_it_and_one_that_is_not_listed_nothing() -> None:
    assert allowed_from(ALLOW, "kafka", "kafka") == ALLOW
    assert allowed_from(ALLOW, "kafka", "team-c") is None
    assert allowed_from(AllowSpec(), "kafka", "team-c") is None


def test_another_namespace_has_what_both_lists_allow_and_no_claims_secrets_or_dead_letters() -> None:
    found = allowed_from(ALLOW, "kafka", "team-a")

    assert found is not None
    assert (found.groups, found.topics) == (("prod-a-*",), ("a.*",))
    assert (found.claims, found.secrets, found.dead_letter_topics, found.namespaces) == ((), (), (), ())
    assert getattr(allowed_from(ALLOW, "kafka", "b"), "groups", None) == ("prod-*",)


def test_an_entry_for_the_own_namespace_narrows_what_it_may_use_itself() -> None:
    allow = ALLOW.model_copy(update={"namespaces": (AllowedNamespace(name="kafka", groups=("prod-ops",)),)})

    found = allowed_from(allow, "kafka", "kafka")

    assert found is not None
    assert (found.groups, found.topics, found.claims) == (("prod-ops",), ("orders", "a.*"), ("disk",))


def test_a_missing_connection_and_one_that_is_not_for_the_namespace_are_told_alike() -> None:
    connections = LiveConnections()
    body = resource("elsewhere", namespace="ns")
    before = connections.used_by(body), not_usable(body)

    connections.put(live_of(FakeKafka(FakeClock()), "uid"))

    assert (connections.used_by(body), not_usable(body)) == before
    assert is_foreign(body)
    assert not is_foreign(resource("ns"))
    assert not is_foreign(resource("ns", namespace="ns"))


def test_what_was_begun_can_be_ended_through_a_connection_that_was_withdrawn_and_nothing_else() -> None:
    kafka, connections = FakeKafka(FakeClock()), LiveConnections()
    connections.put(live_of(kafka, "uid"))

    live = connections.to_finish(resource("elsewhere", namespace="ns"))

    assert live is not None
    assert (live.withdrawn, live.allow.groups, live.allow.topics) == (True, (), ())
    assert live.finishing is kafka
    with pytest.raises(Refused, match="may not be used from this namespace"):
        live.kafka.writer("payments", transaction_timeout_s=1)


def test_who_may_use_it_gets_the_same_cluster_and_its_own_limits() -> None:
    kafka, connections = FakeKafka(FakeClock()), LiveConnections()
    connections.put(live_of(kafka, "uid", AllowSpec(namespaces=(AllowedNamespace(name="a", groups=("x",)),))))

    live = connections.used_by(resource("a", namespace="ns"))

    assert live is not None
    assert (live.kafka, live.uid, live.allow.groups, live.label) == (kafka, "uid", ("x",), "ns/kafka")
    assert live.is_foreign
    assert connections.to_finish(resource("a", namespace="ns")) == live
    own = connections.used_by(resource("ns"))
    assert own is not None
    assert (own.label, own.is_foreign) == ("kafka", False)
