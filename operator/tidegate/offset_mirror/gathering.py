"""What a pass over a mirror finds, and makes ready, in both clusters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Container
from dataclasses import replace
from typing import TypeVar

from tidegate.connection.freezing import begin
from tidegate.connection.live import Live, LiveConnections
from tidegate.kafka.model import Topic
from tidegate.kube.ports import Object
from tidegate.offset_mirror.failback import origin
from tidegate.offset_mirror.partitions import Clusters
from tidegate.offset_mirror.parts import Parts
from tidegate.offset_mirror.preparing import Prepared, not_listed, prepare, wanted_topics
from tidegate.offset_mirror.rows import copied_by_another
from tidegate.offset_mirror.status import COPIED_BY_ANOTHER, TOO_MANY_TOPICS
from tidegate.offset_mirror.topics import wanted
from tidegate.resources.conditions import Refusal
from tidegate.resources.mirror_failover import MOST_TOPICS
from tidegate.resources.offset_mirror import CopyState, OffsetMirrorSpec, OffsetMirrorStatus
from tidegate.threads import in_thread

T = TypeVar("T")


async def topics_prepared(
    parts: Parts,
    body: Object,
    clusters: Clusters,
    spec: OffsetMirrorSpec,
    source: Live,
    target: Live,
    status: OffsetMirrorStatus,
    beginning: Collection[Live],
    copying: Container[str],
) -> Prepared | Refusal:
    """``beginning``: the connections through which it begins by this; ``copying``: see ``prepare``. Raises
    ``FrozenMeanwhile``, ``KafkaFailure``."""
    allowed = (source.allow, target.allow)
    names = await in_thread(parts.patient_executor, wanted_topics, clusters.source, spec.topics, allowed)
    if len(names) > MOST_TOPICS:
        says = f"spec.topics matches {len(names)} topics, but a mirror copies at most {MOST_TOPICS}: create several"
        return Refusal(TOO_MANY_TOPICS, says)
    taken = copied_by_another(body, parts.mirrors(), parts.live, target.cluster_id, names)
    if taken is not None:
        topic, other = taken
        says = f"topic {topic} is copied to this cluster by OffsetMirror {other}, which is older: exclude it here"
        return Refusal(COPIED_BY_ANOTHER, says)
    asked = frozenset(wanted([row.name for row in status.topics], spec.topics, *(allow.topics for allow in allowed)))
    missing = [row for row in status.topics if row.name in asked and row.name not in names]
    # The status has no room for more.
    missing = [row for row in missing if row.state is not CopyState.SOURCE_GONE][: MOST_TOPICS - len(names)]
    unlisted = await in_thread(parts.patient_executor, not_listed, clusters.source, missing)
    known = {topic.name: topic for topic in status.topics}
    taken_back = origin(body, spec, parts.mirrors(), (source.cluster_id, target.cluster_id))
    if isinstance(taken_back, Refusal):
        if not any(topic.target_id for topic in status.topics):
            return taken_back
        taken_back = None  # what could be taken over is in the status: no other mirror has to be there for it
    ids = (*status.producer_ids, *(spec.former_producer_ids or ()))
    seen = (clusters.source, clusters.target, names, known, parts.may_write, taken_back, ids, copying)
    work = functools.partial(prepare, *seen)
    prepared = await in_thread(parts.patient_executor, unless_frozen, parts.live, beginning, work)
    # Who no longer asks for a topic hears no more of it.
    gone = (prepared.gone & asked) - frozenset(unlisted.hidden) - unlisted.there
    return replace(
        prepared,
        gone=gone,
        halted={**prepared.halted, **unlisted.hidden},
        preparing=(*prepared.preparing, *sorted(unlisted.there)),
        sources={**prepared.sources, **{r.name: Topic(r.name, r.source_id, r.partitions) for r in missing}},
    )


def unless_frozen(live: LiveConnections, connections: Collection[Live], start: Callable[[], T]) -> T:
    """From any thread. Raises ``FrozenMeanwhile``."""
    for each in connections:
        start = functools.partial(begin, live.is_frozen, each, start)
    return start()
