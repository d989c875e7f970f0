"""How long takeovers took, as a page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from support.takeover.judging import Write
from support.takeover.story import Story, Struck

_TIMES: Final = ("Lease s", "first write s", "reset goes on s")
_HEAD: Final = ("fault", "the reset was", "the pause was", *_TIMES, "all that was under way")


@dataclass(frozen=True, slots=True)
class Takeover:
    """Seconds from the fault on. `lease_s`: until the API server has given the Lease to the successor. `wrote_s`: until
    that has written anything else. `went_on_s`: until it has written the run's document; ``None``: it had no need."""

    struck: Struck
    lease_s: float
    wrote_s: float | None
    went_on_s: float | None


def takeovers(struck: Iterable[Struck], writes: Sequence[Write]) -> list[Takeover]:
    """By the API server's audit log."""
    return [_takeover(each, [w for w in writes if w.who == each.successor and w.code < 300]) for each in struck]


def _takeover(struck: Struck, writes: Sequence[Write]) -> Takeover:
    after = [write for write in writes if write.t > struck.t]
    leased = [write for write in after if write.what.startswith("leases/")]
    assert leased, f"{struck.successor} leads and has never written the Lease"
    since = [w for w in after if w.t > leased[0].t and not w.what.startswith(("leases", "events"))]
    of_run = [write for write in since if write.what == f"configmaps/{struck.document}"]
    times = [found[0].t - struck.t if found else None for found in (since, of_run)]
    return Takeover(struck, leased[0].t - struck.t, *times)


def document(story: Story, found: Sequence[Takeover], measured: str) -> str:
    """The whole page, of a story in which nothing was wrong. `measured`: where and when."""
    return f"""# How long another replica takes to lead

`make bench NAME=takeover ARGS=--docs`: two replicas of the operator at their default settings, a broker (Kafka 4.3.1)
and an API server. {len(story.resets)} resets, one after the other, of live groups (classic, KIP-848, with the agent)
and of groups without members; {len(story.pauses)} pauses of partitions of a group that runs the agent, some of which
are in force at any time. Each time the leader is killed (`kill -9`), or frozen (`SIGSTOP`) and woken (`SIGCONT`) up to
2 s after another one leads.

{summary(found)}

The three times begin with the fault. They end when the API server has given the Lease to the other replica, when that
replica has written anything but the Lease and Events, and when it has written the document of the run that was
interrupted. A standby waits until the Lease
has not been renewed for 10 s, and a leader renews it every 2 s, so 8 to 12 s are to be expected for the first figure.

{table(found)}

The second column has what the reset was doing, read from its document once the leader was struck:

* *committing* is Pausing with the targets in a transaction that has begun;
* *putting back* comes after the reset's deadline;
* *(over)* is a reset that ended before the signal came, and was followed by another one;
* a plan in *AwaitingApproval* is approved once another replica leads, or at once if the row says so.

A dash means that there was nothing to write.

The page is written only if none of these was found:

* a reset that committed a round of its journal twice, or anything after its end (by the records of
  `__consumer_offsets`), or that ended in another way than it should; consumers that lost a record, or did not begin
  where the reset said;
* a pause whose hold was not written exactly once, and released exactly once after somebody had asked for that (by the
  records of the control topic), or a record of its partition that was read while the pause was in force;
* a status that went back, that showed other phases than its run went through, or that went on after an end; an Event
  that was recorded twice; a condition that changed while a pause was in force (all versions, by a watch);
* a leader that woke and changed anything in the API server (by its audit log), or ended with another code than 3; a
  replica that ended by itself.

`tests/apiserver/test_operator_takeover.py` asserts the same, each night. Broker, API server, operators, consumers and
producers ran on one machine with {measured}
"""


def table(found: Sequence[Takeover]) -> str:
    """A row a fault, the longest takeover last."""
    rows = [
        (
            each.struck.episode.fault,
            f"{each.struck.hit}: {each.struck.episode.whose}",
            each.struck.pause_hit,
            f"{each.lease_s:.1f}",
            _shown(each.wrote_s),
            _shown(each.went_on_s),
            ", ".join(f"{count} {phase}" for phase, count in sorted(each.struck.under_way.items())),
        )
        for each in sorted(found, key=lambda each: (each.struck.episode.fault, each.lease_s))
    ]
    return _table(_HEAD, rows)


def summary(found: Sequence[Takeover]) -> str:
    """A row a fault: how many there were, and how long they took."""
    rows = []
    for fault in sorted({each.struck.episode.fault for each in found}):
        mine = [each for each in found if each.struck.episode.fault is fault]
        rows.append(
            (
                fault,
                str(len(mine)),
                _median_and_most([each.lease_s for each in mine]),
                _median_and_most([each.wrote_s for each in mine if each.wrote_s is not None]),
                _median_and_most([each.went_on_s for each in mine if each.went_on_s is not None]),
            )
        )
    return _table(("fault", "takeovers", *_TIMES), rows)


def _median_and_most(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.1f}, at most {max(seconds):.1f}" if seconds else "–"


def _shown(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
