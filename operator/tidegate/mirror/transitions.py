"""From one state to the next, by what came of the action. Each append has to have come to lie where it was planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tidegate.mirror.batches import Stamp, Unreadable, read_batches, sequence_after
from tidegate.mirror.comparison import disagreement, fills_a_gap
from tidegate.mirror.model import (
    Action,
    Answer,
    Append,
    Appended,
    ClaimProducerId,
    Coordinated,
    DeleteRecords,
    Done,
    FencePredecessors,
    Interrupted,
    Position,
    ProducerIds,
    ProducerState,
    ReadSource,
    ReadTail,
    Refusal,
    Tail,
    Transact,
    WriteMarkers,
)
from tidegate.mirror.source import Copy, Gap, SourceRead, pieces
from tidegate.mirror.states import (
    LAST_MARKER_EPOCH,
    ROLL_EPOCH,
    Claiming,
    Comparing,
    Confirming,
    Doubting,
    Lost,
    Mirror,
    Ready,
    State,
    Stopped,
    fillers_at_once,
    first_position,
)

_WIDER: Final = 8
_TOO_LARGE: Final = frozenset({10, 18})
"""MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE: by ``max.message.bytes`` and ``segment.bytes`` of the topic."""
_OTHER_TIMES: Final = (
    "the target has given the records that were written last the time of its own clock, as its topic has "
    "message.timestamp.type=LogAppendTime"
)
MOST_REFUSALS: Final = 10
"""One after the other, without a batch that was taken in between: another writer goes ahead each time."""


def after(mirror: Mirror, action: Action, answer: Answer) -> Mirror:
    """The writer after the answer to ``action``, its :meth:`Mirror.action`. ``TypeError``: it is none to that."""
    state = mirror.state
    try:
        match state, action, answer:
            case Comparing(), ReadSource(), Interrupted(held_back=True):
                return mirror  # or what was compared would be read again, and use the quota up each time
            case Ready(), ReadSource(), Interrupted(held_back=True):
                return replace(mirror, state=replace(state, idle=False))
            case _, _, Interrupted():
                return replace(mirror, state=_interrupted(state))
            case _, _, Refusal():
                return replace(mirror, state=_refused(answer, state))
            case Lost() | Doubting() | Claiming(), ClaimProducerId(), ProducerIds():
                return _claimed(mirror, answer)
            case Lost(), FencePredecessors(), Coordinated():
                return replace(mirror, coordinated=answer, state=replace(state, fenced=True))
            case Lost(refusals), ReadTail(), Tail():
                return replace(mirror, state=_found(mirror, answer, refusals))
            case Comparing(), ReadSource(), SourceRead():
                return replace(mirror, state=_compared(mirror, state, answer))
            case Ready(), ReadSource(), SourceRead():
                return replace(mirror, state=_read(state, answer))
            case Ready(), Append(), Appended():
                return _appended(mirror, state, action, answer)
            case Ready(work=(Gap(until=until), *_)), WriteMarkers() | Transact(), Done():
                return replace(mirror, state=Confirming(state, state.position.offset + action.count, until))
            case Ready(), DeleteRecords(), Done():
                return replace(mirror, state=replace(state, target_start=action.offset))
            case Confirming(), ReadTail(), Tail():
                return replace(mirror, state=_confirmed(mirror, state, answer))
            case _:
                said, asked = type(answer).__name__, type(action).__name__
                raise TypeError(f"{said} is no answer to {asked} of a writer that is {type(state).__name__}")
    except Unreadable as error:
        return replace(mirror, state=Stopped(str(error), drifted=False))


def forgotten(mirror: Mirror) -> Mirror:
    """After a connection was made anew, or a long pause: what was known of the target's end holds no more."""
    return mirror if isinstance(mirror.state, Stopped) else replace(mirror, state=_interrupted(mirror.state))


def _interrupted(state: State) -> State:
    match state:
        case Stopped():
            return state
        case Doubting(refusals=refusals) | Comparing(refusals=refusals) | Ready(refusals=refusals):
            return Lost(refusals)
        case Claiming(ready) | Confirming(ready):
            return Lost(ready.refusals)
        case Lost():
            return state


def _refused(refusal: Refusal, state: State) -> State:
    if refusal.lasting:
        return Stopped(f"the target refuses: {refusal.name} ({refusal.code})", drifted=False)
    match _interrupted(state):
        case Lost(refusals):
            return _in_vain(refusals, refusal.name)
        case stopped:
            return stopped


def _in_vain(refusals: int, what: str) -> Lost | Stopped:
    """The end is looked at again, but not for ever."""
    if refusals + 1 < MOST_REFUSALS:
        return Lost(refusals + 1)
    reason = f"the target has refused appends at its end {MOST_REFUSALS} times, most recently because of {what}"
    return Stopped(f"{reason}. Is another writer of this mirror running?", drifted=False)


def _claimed(mirror: Mirror, answer: ProducerIds) -> Mirror:
    if not _goes_on(mirror, answer.ids):
        reason = f"the producer ids {answer.ids} do not continue those that were claimed before, {mirror.ids}"
        return replace(mirror, state=Stopped(reason, drifted=False))
    claimed = replace(mirror, ids=answer.ids)
    match mirror.state:
        case Claiming(ready):
            return replace(claimed, state=_rolled(claimed, ready))
        case Doubting(producer_id, end, refusals) if producer_id in answer.ids:
            return replace(claimed, state=Lost(refusals))
        case Doubting(producer_id, end):
            reason = (
                f"somebody else, with producer id {producer_id}, has written up to offset {end}. If that was an "
                "OffsetMirror that was deleted, name this id in spec.formerProducerIds"
            )
            return replace(claimed, state=Stopped(reason, drifted=True))
        case _:
            return claimed


def _goes_on(mirror: Mirror, ids: tuple[int, ...]) -> bool:
    """Whether the ids are those that are known, with others, but for some that are of no more use: in the same order,
    and the one that is written with among them."""
    left = tuple(each for each in mirror.ids if each in ids)
    if isinstance(mirror.state, Claiming) and mirror.state.ready.position.stamp.producer_id not in ids:
        return False
    return bool(ids) and bool(left or not mirror.ids) and left == tuple(each for each in ids if each in left)


# --- the target's end -------------------------------------------------------------------------------------------------


def _found(mirror: Mirror, tail: Tail, refusals: int) -> State:
    position = _position(mirror, tail, refusals)
    if not isinstance(position, Position):
        return position
    if not tail.data:
        return Ready(position, tail.start, source_start=tail.start, refusals=refusals)
    return Comparing(tail, position, max(tail.window, tail.start), refusals)


def _position(mirror: Mirror, tail: Tail, refusals: int) -> Position | Doubting | Lost | Stopped:
    if not tail.data:
        return _by_memory(mirror, tail)
    batches = list(read_batches(tail.data))
    filling = None if mirror.coordinated is None else mirror.coordinated.producer_id
    for batch in batches:
        if batch.stamp.producer_id not in (*mirror.ids, filling) and batch.next_offset > mirror.adopted:
            return Doubting(batch.stamp.producer_id, batch.next_offset, refusals)
    if batches[-1].next_offset != tail.end:
        reason = f"the target's last batch ends at offset {batches[-1].next_offset}, but its log ends at {tail.end}"
        return Stopped(reason, drifted=False)
    last = next((batch for batch in reversed(batches) if batch.stamp.producer_id != filling), None)
    if last is None and tail.window > tail.start:
        return Lost(refusals, (tail.end - tail.window) * _WIDER, fenced=True)
    if last is None:
        return _by_memory(mirror, tail)
    stamp = last.stamp
    if stamp.producer_id not in mirror.ids:
        return first_position(tail.end, mirror.ids[-1])  # all of it was adopted, and none of it is ours
    if last.is_control:
        return Position(tail.end, Stamp(stamp.producer_id, stamp.epoch + 1, 0), fresh=True)
    following = Stamp(stamp.producer_id, stamp.epoch, sequence_after(stamp.sequence, last.span))
    return Position(tail.end, following, fresh=False)


def _by_memory(mirror: Mirror, tail: Tail) -> Position:
    """Where no batch of ours is left, what the broker remembers. Of a producer that it has forgotten it takes anything,
    once: a new producer id would have each of several writers append, this one only the first."""
    known = {producer.producer_id: producer for producer in tail.producers}
    latest = next((known[one] for one in reversed(mirror.ids) if one in known), None)
    return first_position(tail.end, mirror.ids[-1]) if latest is None else _remembered(tail.end, latest)


def _remembered(end: int, producer: ProducerState) -> Position:
    if producer.last_sequence < 0:
        return Position(end, Stamp(producer.producer_id, producer.epoch + 1, 0), fresh=True)
    sequence = sequence_after(producer.last_sequence, 1)
    return Position(end, Stamp(producer.producer_id, producer.epoch, sequence), fresh=False)


def _compared(mirror: Mirror, comparing: Comparing, read: SourceRead) -> State:
    """The source's records have to be the target's, as far as both have them."""
    tail = comparing.tail
    if read.log_start > comparing.known:
        known = read.log_start  # what was there before is gone, and cannot be compared
    else:
        found = disagreement(read, tail, compacts=mirror.compacts, adopted=mirror.adopted)
        if found.reason is not None:
            return Stopped(found.reason, drifted=True)
        known = found.known
    if known < tail.end:
        # Also where the target is ahead: nothing is added to it until the source has come so far.
        return replace(comparing, known=known)
    return Ready(comparing.position, tail.start, source_start=read.log_start, refusals=comparing.refusals)


def _confirmed(mirror: Mirror, confirming: Confirming, tail: Tail) -> State:
    ready = confirming.ready
    if tail.end < confirming.planned:
        return _in_vain(ready.refusals, "missing markers")
    position = _position(mirror, tail, ready.refusals)
    if mirror.coordinated is not None and isinstance(position, Position | Lost):
        position = replace(ready.position, offset=tail.end)  # our own data is where it was
    if not isinstance(position, Position):
        return position
    if tail.end > confirming.until or not _all_hidden(tail, ready.position.offset):
        return Lost(ready.refusals)  # something else is there: whether that can stay, only the source tells
    rest = ready.work[1:]
    work = (Gap(tail.end, confirming.until), *rest) if tail.end < confirming.until else rest
    return _begun(replace(ready, position=position, work=work))


def _all_hidden(tail: Tail, since: int) -> bool:
    batches = [batch for batch in read_batches(tail.data) if batch.next_offset > since]
    return bool(batches) and batches[0].base_offset <= since and all(fills_a_gap(batch) for batch in batches)


# --- the source -------------------------------------------------------------------------------------------------------


def _read(ready: Ready, read: SourceRead) -> State:
    work = pieces(read) if read.log_start <= read.offset else ()
    start = max(ready.source_start, read.log_start)
    return _begun(replace(ready, work=work, source_start=start, idle=not work and start <= ready.position.offset))


def _begun(ready: Ready) -> State:
    """What comes next may be a gap for which the producer id has no epochs left."""
    if not ready.work or not isinstance(ready.work[0], Gap):
        return ready
    position = ready.position
    if position.marker_epoch > (LAST_MARKER_EPOCH if position.fresh else ROLL_EPOCH):
        return Claiming(ready)  # also where a later id is known: it may be of no more use by now
    return ready


def _rolled(mirror: Mirror, ready: Ready) -> State:
    at = mirror.ids.index(ready.position.stamp.producer_id) + 1
    if at == len(mirror.ids):
        return Claiming(ready)
    return replace(ready, position=first_position(ready.position.offset, mirror.ids[at]), proven=False)


# --- what was written -------------------------------------------------------------------------------------------------


def _appended(mirror: Mirror, ready: Ready, action: Append, answer: Appended) -> Mirror:
    if answer.by_its_clock:
        return replace(mirror, state=Stopped(_OTHER_TIMES, drifted=True))
    for planned, outcome in zip(action.offsets, answer.outcomes, strict=True):
        if isinstance(outcome, Refusal):
            fills = ready.position.offset < ready.source_start
            if fills and outcome.code in _TOO_LARGE and mirror.fillers > 1:
                return replace(mirror, state=_interrupted(ready), fillers=max(1, mirror.fillers // _WIDER))
            return replace(mirror, state=_refused(outcome, ready))
        if outcome != planned:
            reason = f"a batch for offset {planned} was written at {outcome}"
            return replace(mirror, state=Stopped(reason, drifted=True))
        ready = _advanced(ready, mirror.fillers)
    return replace(mirror, state=_begun(ready))


def _advanced(ready: Ready, fillers: int) -> Ready:
    """By the batch that was planned first."""
    match ready.work:
        case (Copy(count=count), *rest):
            return replace(ready, position=ready.position.after_data(count), work=tuple(rest), proven=True, refusals=0)
        case _:
            count = fillers_at_once(ready, fillers)
            return replace(ready, position=ready.position.after_data(count), proven=True, refusals=0)
