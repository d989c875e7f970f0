"""What follows a mirror between its passes, put together."""

from __future__ import annotations

from tidegate.connection.live import Live
from tidegate.kube.ports import Object, label_of, uid_of
from tidegate.offset_mirror.carrying import notes_of, selected
from tidegate.offset_mirror.comparing import Comparing, differed
from tidegate.offset_mirror.copying import Carrying, Copying, Sampling
from tidegate.offset_mirror.course import Limits
from tidegate.offset_mirror.ids import ProducerIdsInStatus
from tidegate.offset_mirror.pace import Pace
from tidegate.offset_mirror.partitions import Clusters
from tidegate.offset_mirror.parts import Parts
from tidegate.offset_mirror.reported import Reports
from tidegate.resources.offset_mirror import OffsetMirrorSpec, OffsetMirrorStatus


def opened(
    parts: Parts,
    body: Object,
    status: OffsetMirrorStatus,
    spec: OffsetMirrorSpec,
    source: Live,
    target: Live,
    stopped: Copying | None,
    reports: Reports | None,
) -> Copying:
    """``stopped``: what followed it before, in this process; ``reports``: of the job that copies, if one does."""
    allowed, uid = (source.allow.groups, target.allow.groups), uid_of(body)
    theirs, ours = (parts.open_cluster(live.connection, live.cluster_id) for live in (source, target))
    clusters = Clusters(
        theirs, ours, ProducerIdsInStatus(parts.kube, body, ours.new_producer_id, spec.former_producer_ids or ())
    )
    rate = spec.rate_limit.bytes_per_second if spec.rate_limit is not None else None
    limits = Limits(
        pace=Pace(rate, parts.clock.monotonic),
        max_fill=spec.seed.max_fill,
        may_write=parts.may_write,
        wrote=parts.of_mirrors.wrote,
        now_s=parts.clock.monotonic,
    )
    carrying = None
    if spec.groups is not None:
        groups, interval_s = spec.groups, spec.groups.interval.total_seconds()
        notes = notes_of(uid, fails_back=spec.failback_from is not None)
        carrying = Carrying(interval_s, lambda group_id: selected(group_id, groups, *allowed), notes)
    different = differed(None if stopped is None else stopped.comparing, status)
    sampling = Sampling(spec.parity.interval.total_seconds(), Comparing(theirs, ours, parts.clock.now, known=different))
    around = (parts.patient_executor, parts.clock.now, label_of(body), parts.look_s)
    late = () if stopped is None else stopped.late
    return Copying(clusters, limits, carrying, sampling, *around, reports, late)
