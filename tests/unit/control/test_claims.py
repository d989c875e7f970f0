"""Whose turn it is, by the claims in the control topic: its order and the broker's clock decide, for everybody."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.claims import Claims
from tidegate.control.records import Claim, ClaimKey

GROUP = "payments"
LEASE_MS = 1_000


def key(name: str, group: str = GROUP) -> ClaimKey:
    return ClaimKey(group, name)


def claim(name: str, *, epoch: int | None = None, renews_ms: int | None = None, lease_ms: int = LEASE_MS) -> Claim:
    return Claim(f"reset/{name}", "", lease_ms, epoch, renews_ms)


def names(claims: Claims, group: str = GROUP) -> list[str]:
    return [claimed.key.claim for claimed in claims.queue(group)]


def test_the_first_record_in_the_log_goes_first_whatever_its_id_and_its_time() -> None:
    claims = Claims()
    claims.take(key("z"), claim("z"), 5, 200)
    claims.take(key("a"), claim("a"), 6, 100)
    assert names(claims) == ["z", "a"]


def test_groups_have_nothing_to_do_with_one_another() -> None:
    claims = Claims()
    claims.take(key("a", "g1"), claim("a"), 0, 0)
    claims.take(key("b", "g2"), claim("b"), 1, 0)
    assert (names(claims, "g1"), names(claims, "g2")) == (["a"], ["b"])


def test_a_renewal_keeps_its_place() -> None:
    claims = Claims()
    claims.take(key("a"), claim("a"), 0, 0)
    claims.take(key("b"), claim("b"), 1, 10)
    claims.take(key("a"), claim("a", epoch=0, renews_ms=0), 2, 900)
    claims.take(key("b"), claim("b", epoch=1, renews_ms=10), 3, 950)
    assert names(claims) == ["a", "b"]
    claims.passes(1_950)
    assert names(claims) == ["b"]


def test_it_lapses_by_the_clock_of_the_records_that_follow_and_stays_lapsed() -> None:
    claims = Claims()
    claims.take(key("a"), claim("a"), 0, 0)
    claims.take(key("b"), claim("b"), 1, LEASE_MS)
    assert names(claims) == ["a", "b"]
    claims.passes(LEASE_MS + 1)
    assert names(claims) == ["b"]
    claims.take(key("a"), claim("a", epoch=0, renews_ms=0), 2, LEASE_MS + 2)
    assert names(claims) == ["b"]
    assert [c.key.claim for c in claims.lapsed(GROUP)] == ["a"]


def test_a_clock_that_goes_back_revives_nothing() -> None:
    claims = Claims()
    claims.take(key("a"), claim("a"), 0, 0)
    claims.passes(LEASE_MS + 1)
    claims.take(key("a"), claim("a", epoch=0, renews_ms=0), 2, LEASE_MS - 500)
    assert names(claims) == []


def test_a_clock_that_was_ahead_for_a_while_lets_nobody_wait_until_it_is_as_late_again() -> None:
    ahead_ms = 1_000 * LEASE_MS
    claims = Claims()
    claims.passes(0)
    claims.passes(ahead_ms)
    claims.take(key("a"), claim("a"), 2, 0)
    claims.take(key("b"), claim("b"), 3, 1)
    claims.take(key("b"), claim("b", epoch=3, renews_ms=1), 4, LEASE_MS)
    assert names(claims) == ["a", "b"]
    claims.passes(LEASE_MS + 1)
    assert names(claims) == ["b"]


def test_a_renewal_in_time_counts_for_who_comes_late_though_the_clock_was_ahead_meanwhile() -> None:
    claims = Claims()
    claims.take(key("a"), claim("a", epoch=0, renews_ms=1_000 * LEASE_MS), 2, 10)
    assert names(claims) == ["a"]
    claims.passes(LEASE_MS + 11)
    assert names(claims) == []


def test_who_withdraws_lets_the_next_one_go() -> None:
    claims = Claims()
    claims.take(key("a"), claim("a"), 0, 0)
    claims.take(key("b"), claim("b"), 1, 0)
    claims.take(key("a"), None, 2, 0)
    assert names(claims) == ["b"]
    assert claims.get(key("a")) is None


def test_a_renewal_that_was_on_its_way_does_not_bring_a_withdrawn_claim_back() -> None:
    claims = Claims()
    claims.take(key("a"), claim("a"), 0, 0)
    claims.take(key("a"), None, 1, 10)
    claims.take(key("a"), claim("a", epoch=0, renews_ms=0), 2, 20)
    assert claims.get(key("a")) is None


def test_without_the_brokers_clock_a_claim_says_nothing() -> None:
    claims = Claims()
    claims.take(key("a"), claim("a"), 0, None)
    assert claims.get(key("a")) is None


def test_a_record_that_says_a_better_place_than_it_has_does_not_get_it_from_who_saw_the_first() -> None:
    claims = Claims()
    claims.take(key("a"), claim("a"), 7, 0)
    claims.take(key("b"), claim("b"), 8, 0)
    claims.take(key("b"), claim("b", epoch=0, renews_ms=0), 9, 10)
    assert names(claims) == ["a", "b"]


def test_a_renewal_without_its_claim_counts_from_where_it_says_and_never_from_later_than_it_is() -> None:
    claims = Claims()
    claims.take(key("a"), claim("a"), 20, 0)
    claims.take(key("b"), claim("b", epoch=2**62, renews_ms=0), 21, 0)
    claims.take(key("c"), claim("c", epoch=3, renews_ms=0), 22, 0)
    assert names(claims) == ["c", "a", "b"]


def test_a_renewal_that_came_too_late_has_lapsed_for_those_as_well_who_did_not_see_what_it_renews() -> None:
    claims = Claims()
    claims.take(key("b"), claim("b"), 5, 2 * LEASE_MS)
    claims.take(key("a"), claim("a", epoch=1, renews_ms=0), 6, 2 * LEASE_MS + 1)
    assert names(claims) == ["b"]
    assert [c.key.claim for c in claims.lapsed(GROUP)] == ["a"]


# --- all readers agree ------------------------------------------------------------------------------------------------


@dataclass
class Log:
    """A control topic, and claimants that keep to the contract: who finds that its claim has lapsed makes another."""

    records: list[tuple[int, ClaimKey, Claim | None, int]] = field(default_factory=list)
    now_ms: int = 0
    made: int = 0
    mine: dict[str, ClaimKey] = field(default_factory=dict)

    def read(self, *, compacted_to: int = 0) -> Claims:
        """By a reader that comes now; records before that offset are there only where they are their keys' newest."""
        newest = {k: offset for offset, k, _, _ in self.records}
        claims = Claims()
        for offset, k, value, at_ms in self.records:
            if offset >= compacted_to or newest[k] == offset:
                claims.take(k, value, offset, at_ms)
        return claims

    def step(self, who: str, what: str, passes_ms: int) -> None:
        self.now_ms += passes_ms
        known = self.read()
        mine = self.mine.get(who)
        claimed = known.get(mine) if mine is not None else None
        if what == "withdraw" and mine is not None:
            self._append(mine, None)
            del self.mine[who]
        elif what == "renew" and mine is not None and claimed is not None:
            # Whether it is in time, it learns from the answer.
            self._append(mine, claim(who, epoch=claimed.epoch, renews_ms=claimed.at_ms))
            after = self.read()
            if mine not in {c.key for c in after.queue(GROUP)}:
                del self.mine[who]
        elif mine is None and what != "withdraw":
            self.made += 1
            self.mine[who] = key(f"{who}{self.made}")
            self._append(self.mine[who], claim(who))

    def _append(self, k: ClaimKey, value: Claim | None) -> None:
        self.records.append((len(self.records), k, value, self.now_ms))


STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["renew", "renew", "claim", "withdraw"]), st.integers(0, 1_500)),
    max_size=25,
)


@given(STEPS, st.integers(0, 25))
def test_who_reads_a_compacted_topic_sees_the_same_turn_as_who_was_there_all_the_time(
    steps: list[tuple[str, str, int]], compacted_to: int
) -> None:
    log = Log()
    for step in steps:
        log.step(*step)
        there, late = log.read(), log.read(compacted_to=compacted_to)
        if log.records and late.time_ms == there.time_ms:
            assert names(late) == names(there)


@given(STEPS)
def test_one_has_the_group_until_it_withdraws_or_its_lease_is_over(steps: list[tuple[str, str, int]]) -> None:
    log = Log()
    for number, step in enumerate(steps):
        before = log.read()
        log.step(*step)
        after = log.read()
        first = before.queue(GROUP)[:1]
        if first and len(log.records) and names(after)[:1] != names(before)[:1]:
            [had] = first
            gone = after.get(had.key) is None
            assert gone or log.now_ms > had.until_ms, f"step {number}"
