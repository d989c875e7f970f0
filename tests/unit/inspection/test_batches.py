"""Asking for many groups of which some are refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidegate.inspection.batches import GROUPS, TOPICS, Refusal, answers_of
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Unavailable
from tidegate.kafka.rights import Right

NAMES = [f"g{number:03}" for number in range(200)]


class Coordinators:
    """Refuse as a whole where one group is refused; ``told``: those that the principal is told to lack a right on."""

    def __init__(
        self, refused: Collection[str], told: Collection[str] = (), failure: KafkaFailure | None = None
    ) -> None:
        self.refused, self.told, self.failure = set(refused), set(told), failure
        self.asked: list[int] = []

    def ask(self, group_ids: Collection[str]) -> Mapping[str, int]:
        self.asked.append(len(group_ids))
        if self.failure is not None:
            raise self.failure
        bad = sorted(self.refused & set(group_ids))
        if bad:
            raise NotAuthorized(f"{bad[0]} is refused")
        return {group_id: len(group_id) for group_id in group_ids}

    def lacking(self, rights: Collection[Right]) -> Collection[Right]:
        return [right for right in rights if right.name in self.told]

    def answers(self) -> tuple[dict[str, int], dict[str, Refusal]]:
        return answers_of(NAMES, self.ask, self.lacking)


def test_one_request_where_none_is_refused() -> None:
    kafka = Coordinators(refused=())
    found, refused = kafka.answers()
    assert (list(found), refused, kafka.asked) == (NAMES, {}, [200])


def test_two_requests_where_the_brokers_tell_which_are_refused() -> None:
    hidden = NAMES[::2]
    kafka = Coordinators(refused=hidden, told=hidden)
    found, refused = kafka.answers()
    assert sorted(found) == NAMES[1::2]
    assert refused == {name: Refusal(f"the principal lacks Describe on group {name}", GROUPS) for name in hidden}
    assert kafka.asked == [200, 100]


def test_what_is_refused_for_another_reason_is_found_in_few_requests() -> None:
    kafka = Coordinators(refused=["g017", "g150"], told=["g003"])
    found, refused = kafka.answers()
    assert len(found) == 197
    assert refused == {
        "g003": Refusal("the principal lacks Describe on group g003", GROUPS),
        "g017": Refusal("g017 is refused", TOPICS),
        "g150": Refusal("g150 is refused", TOPICS),
    }
    assert len(kafka.asked) < 40


def test_where_nobody_answers_nobody_is_asked_again() -> None:
    kafka = Coordinators(refused=(), failure=Unavailable("no coordinator"))
    found, refused = kafka.answers()
    assert (found, set(refused), set(refused.values()), kafka.asked) == (
        {},
        set(NAMES),
        {Refusal("no coordinator")},
        [200],
    )
