"""Who may read /metrics, as decided; the real API server's part is in tests/apiserver/test_operator_metrics.py."""

import logging
from collections import Counter

import pytest

from tidegate.kube.ports import KubeFailure, User
from tidegate.service.metrics_access import TokenAccess, Verdict


class Reviews:
    def __init__(self) -> None:
        self.users = {"prometheus": User("system:serviceaccount:m:prometheus"), "curious": User("somebody")}
        self.may = {"system:serviceaccount:m:prometheus"}
        self.away = ""
        self.audience = ""
        self.asked: Counter[str] = Counter()

    def user_of_token(self, token: str, audience: str) -> User | None:
        assert audience == self.audience
        if self.away:
            raise KubeFailure(self.away)
        self.asked[token] += 1
        return self.users.get(token)

    def may_get(self, user: User, path: str) -> bool:
        assert path == "/metrics"
        return user.name in self.may


class Time:
    at = 0.0

    def __call__(self) -> float:
        return self.at


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("headers", "verdict"),
    [
        ({}, Verdict.UNKNOWN),
        ({"authorization": "Basic cHJvbWV0aGV1czp4"}, Verdict.UNKNOWN),
        ({"authorization": "Bearer"}, Verdict.UNKNOWN),
        (bearer("x" * 20_000), Verdict.UNKNOWN),
        (bearer("pröm"), Verdict.UNKNOWN),
        (bearer("nobodys"), Verdict.UNKNOWN),
        (bearer("curious"), Verdict.FORBIDDEN),
        (bearer("prometheus"), Verdict.ALLOWED),
        ({"authorization": "bearer prometheus"}, Verdict.ALLOWED),
    ],
)
def test_only_a_known_user_with_the_right_is_let_in(headers: dict[str, str], verdict: Verdict) -> None:
    assert TokenAccess(Reviews(), Time()).judge(headers) is verdict


def test_the_api_server_is_asked_whether_a_token_is_for_these_metrics() -> None:
    reviews = Reviews()
    reviews.audience = "tidegate-metrics"

    assert TokenAccess(reviews, Time(), "tidegate-metrics").judge(bearer("prometheus")) is Verdict.ALLOWED
    assert reviews.asked["prometheus"] == 1


def test_an_answer_is_kept_for_a_moment_only_and_a_right_taken_away_is_noticed() -> None:
    reviews, time = Reviews(), Time()
    access = TokenAccess(reviews, time)
    for _ in range(3):
        assert access.judge(bearer("prometheus")) is Verdict.ALLOWED
    assert reviews.asked["prometheus"] == 1

    reviews.may.clear()
    time.at += 61
    assert access.judge(bearer("prometheus")) is Verdict.FORBIDDEN

    reviews.may.add("system:serviceaccount:m:prometheus")
    time.at += 11
    assert access.judge(bearer("prometheus")) is Verdict.ALLOWED


def test_it_fails_closed_and_says_once_what_the_operator_lacks(caplog: pytest.LogCaptureFixture) -> None:
    reviews, time = Reviews(), Time()
    access = TokenAccess(reviews, time)
    assert access.judge(bearer("prometheus")) is Verdict.ALLOWED
    reviews.away = "review a token: 403 forbidden"
    time.at += 61

    with caplog.at_level(logging.WARNING):
        assert [access.judge(bearer("prometheus")) for _ in range(2)] == [Verdict.UNDECIDED, Verdict.UNDECIDED]
    assert len(caplog.records) == 1
    assert "needs create on tokenreviews and subjectaccessreviews" in caplog.text
    assert "prometheus" not in caplog.text

    reviews.away = ""
    assert access.judge(bearer("prometheus")) is Verdict.ALLOWED


def test_tokens_that_somebody_makes_up_displace_none_and_are_asked_about_no_more_often_than_so() -> None:
    reviews, time = Reviews(), Time()
    access = TokenAccess(reviews, time)
    access.judge(bearer("prometheus"))
    verdicts = [access.judge(bearer(f"guess-{number}")) for number in range(300)]

    assert verdicts[0] is Verdict.UNKNOWN
    assert verdicts[-1] is Verdict.UNDECIDED
    assert sum(reviews.asked.values()) == 20
    assert access.judge(bearer("prometheus")) is Verdict.ALLOWED
    assert reviews.asked["prometheus"] == 1
    # Not even once its answer is too old.
    time.at += 61
    for number in range(300):
        access.judge(bearer(f"again-{number}"))
    assert access.judge(bearer("prometheus")) is Verdict.ALLOWED
    assert reviews.asked["prometheus"] == 2


def test_no_more_answers_are_kept_than_so_many() -> None:
    reviews, time = Reviews(), Time()
    access = TokenAccess(reviews, time)
    for number in range(300):
        time.at += 1
        access.judge(bearer(f"guess-{number}"))

    assert len(access._refused) == 256
