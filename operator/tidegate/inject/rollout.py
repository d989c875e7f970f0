"""How a changed setting reaches running pods: one is evicted, its replacement waited for, then the next. Pure.

Nothing in a workload is written, so whoever keeps it from Git sees no drift. Where a rollout stands is read from the
pods' annotations; what the status remembers beside them only slows down what brings nothing: an eviction after which no
fewer pods are stale, since the webhook is not asked or can't be reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from tidegate.inject.eligibility import POLICY, PodRefusal, Surroundings, wish_for
from tidegate.inject.environment import Injection
from tidegate.inject.patch import SETTING, AgentImage, image_of, is_injected, patch_for
from tidegate.kube.injection import Evicted
from tidegate.kube.ports import EventType, KubeEvent
from tidegate.printable import shortened
from tidegate.resources.conditions import ConditionStatus
from tidegate.resources.features import MAX_AGENT_VERSIONS, AgentVersion, InjectionStatus, Rollout

INJECTED: Final = "Injected"
NO_PODS: Final = "NoPods"
WEBHOOK_OFF: Final = "WebhookOff"
NOT_INJECTED: Final = "NotInjected"
ROLLOUT_STUCK: Final = "RolloutStuck"
ROLLING_OUT: Final = "RollingOut"
WAITING_FOR_PODS: Final = "WaitingForPods"
REFUSED: Final = "Refused"
OVERRULED: Final = "Overruled"
PODS_NOT_READ: Final = "PodsNotRead"

REPLACED_BY: Final = frozenset(
    {("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("apps/v1", "DaemonSet"), ("v1", "ReplicationController")}
)
"""Controllers that make a new pod for one that was evicted. A Job would count it as a failure."""

_STUCK: Final = timedelta(minutes=5)
_FIRST_RETRY: Final = timedelta(minutes=1)
_LAST_RETRY: Final = timedelta(hours=1)
_SHOWN: Final = 3
_IMAGE: Final = 512
_END: Final = 128
"""Characters of an image's name, and of its end, which has the tag and digest."""


class PodState(StrEnum):
    """``STALE``: it has another setting, or none."""

    INJECTED = "Injected"
    STALE = "Stale"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True)
class Owner:
    """A pod's controller."""

    api_version: str
    kind: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class SeenPod:
    """``state`` ``None``: it is not to be injected, or on its way out. ``changed_at``: when its readiness last changed.

    ``ours``: this policy is the one that rolls it, of all that have a say in it; ``rolled_by``: which one it is
    otherwise. ``overruled``: whose values it has instead of this policy's, and which. ``image``: where it has its agent
    from; empty: it has none.
    """

    name: str
    uid: str
    state: PodState | None
    owner: Owner | None
    ready: bool
    leaving: bool
    changed_at: datetime
    ours: bool = True
    rolled_by: str = ""
    refusal: str = ""
    overruled: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """All that a rollout goes by. ``desired``: how many pods each controller is to have, by its uid, where it was
    asked; ``untold``: why that was not told; ``before``: what the status said.
    """

    now: datetime
    policy: str
    setting: str
    rollout: Rollout
    webhook: bool
    pods: tuple[SeenPod, ...]
    desired: Mapping[str, int] = field(default_factory=dict)
    untold: Mapping[str, str] = field(default_factory=dict)
    before: InjectionStatus = field(default_factory=InjectionStatus)

    def of(self, state: PodState) -> tuple[SeenPod, ...]:
        return tuple(pod for pod in self.pods if pod.state is state)


@dataclass(frozen=True, slots=True)
class Decision:
    """``evict``: this pod, now. The others: what the status and the condition Injected say if that is done; ``undone``:
    the status if it is not. ``blocked``: it was not, and trying again at once is of no use.
    """

    evict: SeenPod | None
    status: InjectionStatus
    condition: tuple[ConditionStatus, str, str]
    undone: InjectionStatus
    happenings: tuple[KubeEvent, ...] = ()
    blocked: bool = False

    @property
    def under_way(self) -> bool:
        return self.condition[1] in (ROLLING_OUT, ROLLOUT_STUCK)


# --- see --------------------------------------------------------------------------------------------------------------


def seen_pod(pod: Mapping[str, Any], policy: str, around: Surroundings, agent: AgentImage) -> SeenPod | None:
    """A running pod as this policy's rollout sees it; ``None`` for one that has ended."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    ready: Mapping[str, Any] = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), {})
    leaving = bool(metadata.get("deletionTimestamp"))
    wish = None if leaving else wish_for(pod, around)
    state, refusal, overruled = _state(pod, policy, wish, agent)
    first = next(iter(wish.policies), "") if isinstance(wish, Injection) else ""
    return SeenPod(
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        state=state,
        owner=_owner(metadata),
        ready=ready.get("status") == "True",
        leaving=leaving,
        changed_at=datetime.fromisoformat(str(ready.get("lastTransitionTime") or metadata["creationTimestamp"])),
        ours=first == policy,
        rolled_by="" if first == policy else first,
        refusal=refusal,
        overruled=overruled,
        image=image_of(pod) or "",
    )


def _state(
    pod: Mapping[str, Any], policy: str, wish: Injection | PodRefusal | None, agent: AgentImage
) -> tuple[PodState | None, str, str]:
    if wish is None:
        return None, "", ""
    if isinstance(wish, PodRefusal):
        return PodState.REFUSED, wish.message, ""
    conflicts = (
        conflict.removeprefix(f"{policy}: ") for conflict in wish.conflicts if conflict.startswith(f"{policy}: ")
    )
    overruled = next((f"{wish.policies[0]} ({what})" for what in conflicts), "")
    named = (pod["metadata"].get("annotations") or {}).get(POLICY)
    if named is not None and named != policy:
        overruled = f"{named} (annotation {POLICY})"
    if is_injected(pod, wish):
        return PodState.INJECTED, "", overruled
    patch = patch_for(pod, wish, agent)
    if isinstance(patch, PodRefusal):
        return PodState.REFUSED, patch.message, overruled
    return PodState.STALE, "", overruled


def _owner(metadata: Mapping[str, Any]) -> Owner | None:
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            return Owner(*(str(reference[name]) for name in ("apiVersion", "kind", "name", "uid")))
    return None


def to_ask(seen: Seen) -> tuple[Owner, ...]:
    """The controllers whose wished-for number of pods a decision needs."""
    if seen.rollout is not Rollout.RESTART:
        return ()
    owners = {
        pod.owner.uid: pod.owner for pod in seen.of(PodState.STALE) if pod.owner is not None and _is_replaced(pod)
    }
    return tuple(owners[uid] for uid in sorted(owners))


def desired_pods(controller: Mapping[str, Any]) -> int | None:
    """How many pods a controller is to have; ``None`` for one that is on its way out."""
    if controller["metadata"].get("deletionTimestamp"):
        return None
    if controller.get("kind") == "DaemonSet":
        return int((controller.get("status") or {}).get("desiredNumberScheduled") or 0)
    return int((controller.get("spec") or {}).get("replicas", 1))


# --- decide -----------------------------------------------------------------------------------------------------------


def decide(seen: Seen) -> Decision:
    """Whom to evict, if anybody, and what to say."""
    if not seen.webhook:
        status = InjectionStatus(setting=seen.setting)
        message = "the operator's webhook is off (TIDEGATE_WEBHOOK_ADDRESS), so no pod gets the setting"
        condition = (ConditionStatus.FALSE, WEBHOOK_OFF, message)
        return Decision(None, status, condition, status, _happenings(seen, status, condition, None))
    stale, before = len(seen.of(PodState.STALE)), seen.before
    same = before.setting == seen.setting and stale > 0
    stale_before = before.stale_before if same else None
    futile = (before.futile or 0) if same else 0
    retry_at = before.retry_at if same else None
    if retry_at is not None and seen.rollout is not Rollout.RESTART:
        # Nobody's turn comes, as through a frozen connection. The last eviction is judged, and counted, once it does.
        futile, retry_at = max(0, futile - 1), None
    evict = _next(seen)
    if evict is not None and stale_before is not None and stale >= stale_before:
        if retry_at is None:
            futile += 1
            retry_at = (seen.now + _retry(futile)).replace(microsecond=0)
        if seen.now < retry_at:
            evict = None
    elif evict is not None:
        futile = 0
    undone = InjectionStatus(
        setting=seen.setting,
        pods=sum(pod.state is not None for pod in seen.pods),
        injected=len(seen.of(PodState.INJECTED)),
        stale=stale,
        refused=len(seen.of(PodState.REFUSED)),
        versions=_versions(seen),
        stale_before=stale_before,
        futile=futile or None,
        retry_at=retry_at,
    )
    status = undone.model_copy(update={"stale_before": stale, "retry_at": None}) if evict is not None else undone
    condition = _condition(seen, status)
    return Decision(evict, status, condition, undone, _happenings(seen, status, condition, evict))


def _versions(seen: Seen) -> tuple[AgentVersion, ...]:
    counted = Counter(pod.image for pod in seen.of(PodState.INJECTED) if pod.image)
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    # Registries take shorter names; but whoever makes pods may write anything, and a status has to stay small.
    return tuple(
        AgentVersion(image=shortened(image, _IMAGE, _END), pods=pods) for image, pods in ordered[:MAX_AGENT_VERSIONS]
    )


def after(decision: Decision, evicted: Evicted) -> Decision:
    """What holds when the eviction was asked for: one that did not take place is decided about again."""
    if evicted is Evicted.YES or decision.evict is None:
        return decision
    if evicted is Evicted.BUDGET:
        why = f"pod {decision.evict.name} has to stay for now: its disruption budget allows no eviction"
        return _blocked(decision, why)
    return replace(decision, evict=None, status=decision.undone)


def not_evicted(decision: Decision, why: str) -> Decision:
    """What holds when the eviction was refused, or nobody knows whether it took place. The API server answers like
    that, too, for as long as several disruption budgets select the pod."""
    name = decision.evict.name if decision.evict is not None else ""
    return _blocked(decision, f"pod {name} could not be evicted: {why}")


def _blocked(decision: Decision, why: str) -> Decision:
    status, reason, message = decision.condition
    told = (status, reason, f"{message}; {why}")
    return replace(decision, evict=None, status=decision.undone, condition=told, blocked=True)


def _retry(futile: int) -> timedelta:
    return min(_LAST_RETRY, _FIRST_RETRY * (1 << min(futile - 1, 10)))


def _is_replaced(pod: SeenPod) -> bool:
    return pod.ours and pod.owner is not None and (pod.owner.api_version, pod.owner.kind) in REPLACED_BY


def _next(seen: Seen) -> SeenPod | None:
    """A stale pod of a controller that has all its pods, and all of them ready."""
    if seen.rollout is not Rollout.RESTART:
        return None
    for pod in sorted(seen.of(PodState.STALE), key=lambda pod: pod.name):
        if _is_replaced(pod) and pod.owner is not None and not _waits_for(seen, pod.owner):
            return pod
    return None


def _waits_for(seen: Seen, owner: Owner) -> str:
    """Why no pod of this controller may go now; empty: one may."""
    pods = [pod for pod in seen.pods if pod.owner is not None and pod.owner.uid == owner.uid]
    leaving = sorted(pod.name for pod in pods if pod.leaving)
    if leaving:
        return f"pod {leaving[0]} is ending"
    unready = sorted(pod.name for pod in pods if not pod.ready)
    if unready:
        return f"pod {unready[0]} is not ready"
    desired = seen.desired.get(owner.uid)
    if desired is None:
        return seen.untold.get(owner.uid, f"{owner} is not known")
    return "" if len(pods) == desired else f"{owner} has {len(pods)} of {desired} pod(s)"


# --- say --------------------------------------------------------------------------------------------------------------


def _condition(seen: Seen, status: InjectionStatus) -> tuple[ConditionStatus, str, str]:
    overruled = sorted({pod.overruled for pod in seen.pods if pod.overruled})
    refused = sorted({pod.refusal for pod in seen.of(PodState.REFUSED)})
    count = f"{status.injected} of {status.pods} pod(s) have the setting"
    if not status.pods:
        return ConditionStatus.UNKNOWN, NO_PODS, "no pod of this namespace is selected"
    if overruled:
        message = f"{count}, but another policy overrules this one: {', '.join(overruled[:_SHOWN])}"
        return ConditionStatus.FALSE, OVERRULED, message
    if status.retry_at is not None and status.futile and seen.now < status.retry_at:
        at = status.retry_at.isoformat(timespec="seconds").replace("+00:00", "Z")
        message = (
            f"{count}. {status.futile} pod(s) were evicted and came back without it: make sure that the API server "
            f"reaches the webhook, that no pod template sets {SETTING} itself, and that no other webhook removes it. "
            f"The next pod is evicted at {at}"
        )
        return ConditionStatus.FALSE, NOT_INJECTED, message
    if status.stale:
        return _rolling(seen, count)
    if refused:
        return ConditionStatus.FALSE, REFUSED, f"{count}. {status.refused} can't have it: {'; '.join(refused[:_SHOWN])}"
    return ConditionStatus.TRUE, INJECTED, count


def _rolling(seen: Seen, count: str) -> tuple[ConditionStatus, str, str]:
    stale = seen.of(PodState.STALE)
    replaced = [pod for pod in stale if _is_replaced(pod)]
    if seen.rollout is not Rollout.RESTART:
        return ConditionStatus.FALSE, WAITING_FOR_PODS, f"{count}; the others get it when they are replaced"
    if not replaced:
        alone = [pod for pod in stale if not pod.rolled_by]
        if not alone:
            others = ", ".join(sorted({pod.rolled_by for pod in stale})[:_SHOWN])
            message = f"{count}; the rollout of policy {others} decides whether the other pods are evicted"
            return ConditionStatus.FALSE, WAITING_FOR_PODS, message
        owners = sorted({str(pod.owner) if pod.owner else f"pod {pod.name}" for pod in alone})
        others = f"the others ({', '.join(owners[:_SHOWN])})"
        message = f"{count}; {others} are not evicted, because nothing would replace them: restart them yourself"
        return ConditionStatus.FALSE, WAITING_FOR_PODS, message
    waiting = {pod.owner.uid: pod.owner for pod in replaced if pod.owner is not None}
    waits = [_waits_for(seen, owner) for owner in waiting.values()]
    if not all(waits):
        return ConditionStatus.FALSE, ROLLING_OUT, f"{count}; the others are replaced one after the other"
    theirs = [pod for pod in seen.pods if pod.owner is not None and pod.owner.uid in waiting]
    stuck = any(not pod.ready and not pod.leaving and seen.now - pod.changed_at > _STUCK for pod in theirs)
    message = f"{count}; the rollout waits: {waits[0]}"
    return ConditionStatus.FALSE, ROLLOUT_STUCK if stuck else ROLLING_OUT, message


def _happenings(
    seen: Seen, status: InjectionStatus, condition: tuple[ConditionStatus, str, str], evict: SeenPod | None
) -> tuple[KubeEvent, ...]:
    _, reason, message = condition
    if evict is not None and not status.futile:
        told = f"pods are evicted one after the other, so that they get the setting of {seen.policy}"
        return (KubeEvent(EventType.NORMAL, ROLLING_OUT, told, f"injection/rollout/{seen.setting}"),)
    if reason in (NOT_INJECTED, ROLLOUT_STUCK, REFUSED, OVERRULED, WEBHOOK_OFF):
        key = f"injection/{reason}/{seen.setting}/{status.futile or 0}"
        return (KubeEvent(EventType.WARNING, reason, message, key),)
    return ()
