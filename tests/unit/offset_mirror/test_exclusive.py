"""Who else may write a mirror's copies, as far as the target's ACLs tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.mirror.passes import World
from tidegate.kafka.acls import TopicAcl, writers_of
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka.errors import NotAuthorized
from tidegate.offset_mirror import copying
from tidegate.offset_mirror.exclusive import judged, own_principal

ALICE, MIRROR = "User:alice", "User:mirror"


def acl(principal: str, name: str = "t", *, prefixed: bool = False, host: str = "*", allows: bool = True) -> TopicAcl:
    return TopicAcl(name, prefixed, principal, host, allows)


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], set()),
        ([acl(ALICE)], {ALICE}),
        ([acl(ALICE, "other")], set()),
        ([acl(ALICE, "t", prefixed=True)], {ALICE}),
        ([acl(ALICE, "topic", prefixed=True)], set()),
        ([acl(ALICE, "*")], {ALICE}),
        ([acl(ALICE, "*", prefixed=True)], set()),
        ([acl("User:*"), acl(MIRROR)], {"User:*", MIRROR}),
        ([acl(ALICE), acl(ALICE, "*", allows=False)], set()),
        ([acl(ALICE), acl(ALICE, allows=False, host="10.0.0.1")], {ALICE}),
        ([acl(ALICE), acl(MIRROR), acl("User:*", allows=False)], set()),
        ([acl(ALICE, host="10.0.0.1")], {ALICE}),
    ],
)
def test_acls_are_read_as_brokers_read_them(acls: list[TopicAcl], expected: set[str]) -> None:
    assert writers_of("t", acls) == expected


@pytest.mark.parametrize(
    ("writers", "own", "expected", "says"),
    [
        ({"t": {MIRROR}}, MIRROR, ("True", "OnlyThisPrincipal"), "User:mirror write to the 1 copies"),
        (
            {"t": {MIRROR}, "u": {MIRROR, ALICE}},
            MIRROR,
            ("False", "OthersMayWrite"),
            "1 of 2 copies, such as u: User:alice",
        ),
        ({"t": {"User:*"}}, MIRROR, ("False", "OthersMayWrite"), "User:*"),
        ({"t": set()}, MIRROR, ("Unknown", "WritersUnknown"), "no ACL lets this mirror write to 1 of 1 copies"),
        ({"t": {ALICE}}, None, ("Unknown", "WritersUnknown"), "certificate or token"),
        ({"t": {"User:*"}}, None, ("False", "OthersMayWrite"), "such as t: User:*"),
        ({"t": {ALICE, MIRROR}}, None, ("False", "OthersMayWrite"), "one of which may be this mirror's"),
        (None, MIRROR, ("False", "NoAuthorizer"), "anybody can write"),
    ],
)
def test_it_is_said_only_what_acls_tell(
    writers: dict[str, set[str]] | None, own: str | None, expected: tuple[str, str], says: str
) -> None:
    found = None if writers is None else {topic: frozenset(names) for topic, names in writers.items()}

    status, reason, message = judged(found, own)

    assert (status, reason) == expected
    assert says in message


def test_many_and_hostile_names_make_a_short_line() -> None:
    names = frozenset({f"User:{n:03}\n" for n in range(100)})

    _, _, message = judged({"t": names}, MIRROR)

    assert "\n" not in message
    assert message.endswith("and 97 more")


def test_a_principal_is_known_where_it_is_a_user_name() -> None:
    assert own_principal(Authentication(AuthenticationType.SCRAM_SHA_512, username="mirror")) == MIRROR
    assert own_principal(Authentication(AuthenticationType.TLS)) is None
    assert own_principal(Authentication(AuthenticationType.OAUTH, client_id="mirror")) is None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(copying, "_ACLS_S", 0.02)
    world = World()
    yield world
    world.close()


def test_a_mirror_says_whether_others_may_write_its_copies(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.one_pass()
    world.copied()
    world.passes(lambda: world.condition("Exclusive").reason == "NoAuthorizer")

    login = Authentication(AuthenticationType.SCRAM_SHA_512, username="mirror")
    world.there.may_write = {"t": frozenset({MIRROR, ALICE})}
    world.run(world.reconciler.stop())
    world.connect("there", connection=replace(Connection("there"), authentication=login), digest="with a login")
    world.passes(lambda: world.condition("Exclusive").reason == "OthersMayWrite")
    assert ALICE in world.condition("Exclusive").message
    world.there.may_write = {"t": frozenset({MIRROR})}
    world.passes(lambda: world.condition("Exclusive").status == "True")

    def refused(topics: object) -> object:
        raise NotAuthorized("look at the ACLs of topics: allow the principal Describe on cluster")

    monkeypatch.setattr(world.there, "writers", refused)
    world.passes(lambda: world.condition("Exclusive").reason == "WritersUnknown")
    assert "Describe on cluster" in world.condition("Exclusive").message
    assert world.condition("Ready").status == "True"

    world.spec["suspend"] = True
    world.one_pass()
    assert world.condition("Exclusive").status == "Unknown"
