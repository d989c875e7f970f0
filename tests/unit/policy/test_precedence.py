"""Which of several policies has a group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.policy.precedence import DISCOVERY, RETENTION, Contender, Contenders

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
BOTH = frozenset({DISCOVERY, RETENTION})


def policy(name: str, *entries: str, exclude: tuple[str, ...] = (), created: str = EARLY, **other: object) -> Contender:
    made = Contender(f"uid-{name}", "ns", name, created, ("ns", "kafka"), entries, exclude, BOTH)
    return replace(made, **other)  # type: ignore[arg-type]


def first(group: str, *policies: Contender, part: str = RETENTION) -> str:
    contenders = Contenders(lambda _namespace, connection: connection.partition("-")[0])
    for one in policies:
        contenders.put(one)
    found = {contenders.ranked(one, group, part)[0].name for one in policies if one.selects(group)}
    assert len(found) == 1, "all agree"
    return found.pop()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (policy("one", "payments"), policy("other", "payments*")),
        (policy("one", "payments", created=LATE), policy("other", "pay*")),
        (policy("one", "x", "payments", created=LATE), policy("other", "payment*", "pay*")),
        (policy("one", "pay*", created=LATE), policy("other", "p*")),
        (policy("one", "pay*", created=LATE), policy("other", "*payments")),
        (policy("one", "*", "paym*", created=LATE), policy("other", "pay*s")),
        (policy("one", "pay*"), policy("other", "pay*s", created=LATE)),
        (policy("one", "payments"), policy("other", "payments", created=LATE)),
        (policy("one", "payments"), policy("other", "payments")),
        (policy("z", "*"), policy("a", "*", exclude=("pay*",))),
    ],
    ids=[
        "name before pattern",
        "name before older pattern",
        "best entry counts",
        "longer prefix before older",
        "prefix before none",
        "best pattern counts",
        "what follows the star does not count",
        "older name first",
        "then by name",
        "one that excludes it does not compete",
    ],
)
def test_the_more_specific_policy_goes_first(one: Contender, other: Contender) -> None:
    assert first("payments", one, other) == one.name
    assert first("payments", other, one) == one.name


def test_policies_compete_for_the_same_part_of_one_namespace_and_cluster_only() -> None:
    every, named = policy("every", "*"), policy("named", "payments")
    contenders = Contenders(lambda _namespace, connection: connection.partition("-")[0])
    contenders.put(every)

    contenders.put(replace(named, parts=frozenset({DISCOVERY})))
    assert [c.name for c in contenders.ranked(every, "payments", RETENTION)] == ["every"]
    assert [c.name for c in contenders.ranked(every, "payments", DISCOVERY)] == ["named", "every"]
    contenders.put(replace(named, namespace="elsewhere"))
    assert [c.name for c in contenders.ranked(every, "payments", DISCOVERY)] == ["every"]
    contenders.put(replace(named, connection=("ns", "other")))
    assert [c.name for c in contenders.ranked(every, "payments", DISCOVERY)] == ["every"]
    contenders.put(replace(named, connection=("ns", "kafka-2")))
    assert [c.name for c in contenders.ranked(every, "payments", DISCOVERY)] == ["named", "every"]
    contenders.drop(named.uid)
    assert [c.name for c in contenders.ranked(every, "payments", DISCOVERY)] == ["every"]


def test_one_that_asks_for_a_reset_only_does_not_compete() -> None:
    contenders = Contenders(lambda _namespace, connection: connection)
    every = policy("every", "*")
    contenders.put(every)
    contenders.put(replace(policy("named", "payments"), parts=frozenset()))

    assert contenders.ranked(every, "payments", RETENTION) == (every,)
