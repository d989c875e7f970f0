"""A run's claim on its group: wait for one's turn, keep it while the run is alive, give it back (ADR 21).

What claims mean is in ``tidegate.control.claims``; this makes them. A claim is the run's, not its writer's: whoever
takes the run over goes on with it at once. It says who may begin. That an earlier writer can no longer commit is seen
to by Kafka: the transactional id is the group's, and whoever has the group fences whoever had it before.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from tidegate.cluster import Kafka
from tidegate.control.claims import Claimed, Claims
from tidegate.control.records import Claim, ClaimKey
from tidegate.kafka.errors import KafkaFailure, Refused
from tidegate.printable import visible
from tidegate.reset.applying.gates import BY_DISCOVERY, holder, run_of
from tidegate.reset.applying.timing import NotReady, Pace
from tidegate.reset.store import StaleAttempt

LEASE_S: Final = 45.0
"""How long others wait for a run that is not heard of. Longer than a failover of the control topic's broker: while that
is away nobody is heard of, and who is first to write then would lapse the others."""

RENEW_S: Final = 10.0

_LOOK_S: Final = 1.0
"""Between two looks at whose turn it is."""


class ClaimLost(StaleAttempt):
    """The run was not heard of for too long, and another one has the group: stop, and touch nothing more."""


def claimant(run_uid: str) -> str:
    """Whose claim it is: the same for every writer of a run.

    One process at a time sends owners back for a policy, and the runs of one that died are gone with it: what it had
    claimed, the next one has.
    """
    kind, _, rest = run_uid.partition("/")
    return holder(f"{kind}/{rest.partition('/')[0]}" if kind == BY_DISCOVERY else run_uid)


class GroupClaim:
    """The claim of one run on one group, for one writer of it. ``renew`` may be called by a thread of its own.

    ``reason``: of the run, for whoever waits behind it. ``tell``: told again and again whom the run waits behind, in
    words; may raise ``StaleAttempt``.
    """

    def __init__(
        self, kafka: Kafka, pace: Pace, group_id: str, run_uid: str, reason: str, tell: Callable[[str], None]
    ) -> None:
        self._kafka = kafka
        self._pace = pace
        self._group_id = group_id
        self._run = claimant(run_uid)
        self._reason = reason
        self._tell = tell
        self._lock = threading.Lock()
        self._mine: Claimed | None = None
        self._renewed_s = 0.0
        self._looked = (0, 0.0)
        """The newest time of the topic that was read, and when that was (monotonic seconds)."""
        self._held = False
        self._over = False
        self._lost = ""
        self.behind = ""
        """Whom the run waits behind, or waited behind last; empty: it has never waited."""

    @property
    def epoch(self) -> int:
        """The claim's place in the log. Raises ``ValueError`` where there is none yet."""
        if self._mine is None:
            raise ValueError(f"group {self._group_id} is not claimed yet")
        return self._mine.epoch

    # --- getting it ---------------------------------------------------------------------------------------------------

    def take(self) -> None:
        """Wait until it is the run's turn: until no other run has the group, nor replays it.

        No run has a claim while its group reads to the end of a replay. So whoever waits for that has none either: the
        replay could never be ended otherwise.

        Raises ``NotReady`` and ``DeadlinePassed`` where it did not come in time, ``KafkaFailure``, and what ``tell``
        raises.
        """
        limit_s = self._pace.tuning.turn_limit_s
        until_s = None if limit_s is None else self._pace.clock.monotonic() + limit_s
        while True:
            while (replay := self._pace.retrying(self._replay_of_another)) is not None:
                self._wait_behind(replay, until_s)
            first = self._pace.retrying(self._enter)
            while first is not None:
                self._wait_behind(self._described(first), until_s)
                first = self._pace.retrying(self._look)
            if self._pace.retrying(self._replay_of_another) is None:
                break
            self._pace.retrying(self._withdraw)
        self._pace.retrying(self._tidy)
        self._held = True

    def _wait_behind(self, behind: str, until_s: float | None) -> None:
        self.behind = behind
        self._tell(behind)
        if until_s is not None and self._pace.clock.monotonic() > until_s:
            raise NotReady(f"the run did not get its turn within {self._pace.tuning.turn_limit_s:g} s")
        self._pace.pause(_LOOK_S)

    def _replay_of_another(self) -> str | None:
        """Which other run replays the group up to an end, by its limits."""
        for key, limited in sorted(self._kafka.control.read().limits.items()):
            if key.group == self._group_id and run_of(key.holder) is not None and key.holder != self._run:
                who = visible(limited.limit.reason) or visible(key.holder)
                return f"group {self._group_id} is being replayed by another run ({who}), which must end first"
        return None

    def _withdraw(self) -> None:
        if self._mine is not None:
            self._kafka.control.withdraw([self._mine.key])
            self._mine = None

    def take_now(self) -> bool:
        """Take it if it is the run's turn; else the run may have a place behind others. Raises ``KafkaFailure``.

        Not while another run replays the group: that would miss its claim, which has lapsed.
        """
        if self._replay_of_another() is not None or self._enter() is not None:
            return False
        self._tidy()
        return True

    def is_there(self, epoch: int) -> bool:
        """Whether a claim of this epoch is in the topic still: then nobody else has had the group since it lapsed, if
        it has. Raises ``KafkaFailure``."""
        claims = self._claims()
        return any(c.epoch == epoch for c in (*claims.queue(self._group_id), *claims.lapsed(self._group_id)))

    def _enter(self) -> Claimed | None:
        """Go on with the run's claim, or make one; who has the group, where that is another."""
        control = self._kafka.control
        claims = self._claims()
        if not control.exist:
            complaints = control.ensure()
            if complaints:
                raise Refused(f"claim group {self._group_id}: {'; '.join(complaints)}")
        known = next((c for c in claims.queue(self._group_id) if c.claim.run == self._run), None)
        if known is not None:
            claims = self._write(known.key, known)
            if self._is_in_force(claims):
                return self._first(claims)
        return self._first(self._write(ClaimKey(self._group_id, str(uuid.uuid4())), None))

    def _look(self) -> Claimed | None:
        """Who has the group by now, where that is another."""
        now_s = self._pace.clock.monotonic()
        claims = self._claims()
        first = self._first(claims)
        if first is not None and self._mine is not None:
            time_ms, at_s = self._looked
            may_have_lapsed = first.until_ms < time_ms + (now_s - at_s) * 1000
            if may_have_lapsed or now_s - self._renewed_s >= RENEW_S:
                # Any record tells the time.
                claims = self._write(self._mine.key, self._mine)
        return self._first(claims) if self._is_in_force(claims) else self._enter()

    def _tidy(self) -> None:
        """Others' claims that have lapsed: whose they are learns by it that somebody else has had the group. The run's
        own stay until it is over: they tell a later writer of it that nobody had."""
        left = [c.key for c in self._claims().lapsed(self._group_id) if c.claim.run != self._run]
        if left:
            self._kafka.control.withdraw(left)

    # --- keeping it ---------------------------------------------------------------------------------------------------

    def kept(self) -> AbstractContextManager[None]:
        """Renews it again and again, beside everything else, once the run has the group."""
        return self._pace.clock.repeat(RENEW_S, self.renew)

    def renew(self) -> None:
        """Once; what goes wrong is told by ``check`` where it matters."""
        if not self._lock.acquire(blocking=False):
            return  # it is being renewed, or given back
        try:
            if self._held and not self._over and not self._lost:
                self._renew()
        except KafkaFailure:
            pass  # again soon
        except ClaimLost as lost:
            self._lost = str(lost)
        finally:
            self._lock.release()

    def check(self) -> None:
        """Raises ``ClaimLost`` where that is known."""
        if self._lost:
            raise ClaimLost(self._lost)

    def confirm_now(self) -> None:
        """Make sure, before something is begun, that the run has the group: another writer of it may have ended it.

        Raises ``ClaimLost`` and ``KafkaFailure``.
        """
        self.confirm()
        claims = self._claims()
        if self._first(claims) is not None or not self._is_in_force(claims):
            with self._lock:
                self._renew()

    def confirm(self, *, after_s: float = 2 * RENEW_S) -> None:
        """Make sure that the run has the group still, where it could not renew its claim for so long: the process may
        have been frozen. 0: also where it could; somebody may have ended the run since.

        Raises ``ClaimLost`` and ``KafkaFailure``.
        """
        self.check()
        if self._pace.clock.monotonic() - self._renewed_s < after_s:
            return
        with self._lock:
            self._renew()

    def stop(self) -> None:
        """Renew it no more: it lapses, unless another writer of the run goes on with it."""
        self._over = True

    def release(self) -> None:
        """The run is over. Where Kafka does not answer, its claim lapses."""
        with self._lock:
            self._over = True
            try:
                claims = self._claims()
                there = (*claims.queue(self._group_id), *claims.lapsed(self._group_id))
                mine = [c.key for c in there if c.claim.run == self._run]
                if mine:
                    self._kafka.control.withdraw(mine)
            except KafkaFailure:
                pass

    def _renew(self) -> None:
        mine = self._mine
        if mine is None:
            raise ValueError(f"group {self._group_id} is not claimed yet")
        claims = self._write(mine.key, mine)
        first = self._first(claims)
        if first is None and self._is_in_force(claims):
            return
        # It came too late. If nobody was waiting, and nobody has been here, the run goes on.
        if first is None and self.is_there(mine.epoch) and self._enter() is None and self.is_there(mine.epoch):
            return
        by = f": {self._described(first)}" if first is not None else ""
        raise ClaimLost(
            f"the claim on group {self._group_id} was not renewed for {LEASE_S:.0f} s, and another run has had the "
            f"group since{by}"
        )

    # --- reading and writing ------------------------------------------------------------------------------------------

    def _claims(self) -> Claims:
        claims = self._kafka.control.read().claims
        if claims.time_ms != self._looked[0]:
            self._looked = (claims.time_ms, self._pace.clock.monotonic())
        if self._mine is not None:
            self._mine = claims.get(self._mine.key) or self._mine
        return claims

    def _write(self, key: ClaimKey, renews: Claimed | None) -> Claims:
        """Claim, or renew; what the topic says after it."""
        sent_s = self._pace.clock.monotonic()
        epoch, at_ms = (None, None) if renews is None else (renews.epoch, renews.at_ms)
        self._kafka.control.claim(key, Claim(self._run, self._reason[:1024], int(LEASE_S * 1000), epoch, at_ms))
        claims = self._claims()
        self._mine = claims.get(key) or self._mine
        self._renewed_s = sent_s
        return claims

    def _is_in_force(self, claims: Claims) -> bool:
        return self._mine is not None and self._mine == claims.get(self._mine.key) and claims.is_in_force(self._mine)

    def _first(self, claims: Claims) -> Claimed | None:
        """Who has the group, where that is another; ``None``: this run does, or would if it claimed it."""
        first = next(iter(claims.queue(self._group_id)), None)
        return None if first is None or first.claim.run == self._run else first

    def _described(self, first: Claimed) -> str:
        who = visible(first.claim.reason) or visible(first.claim.run)
        return f"group {self._group_id} is taken by another run ({who}); only one run at a time may change its offsets"
