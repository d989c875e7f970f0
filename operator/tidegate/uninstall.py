"""``tidegate-operator uninstall``: release everything before Tidegate is removed; the resources stay.

First the operator is ended, if its Deployment is named: two would undo each other's work. Then the same reconcilers as
ever are shown each pause and each reset as if it had been deleted (:mod:`tidegate.kube.uninstall_client`): they
release what is held, put workloads and the offsets of a run in mid-flight back, and take the finalizer off, all within
the time that a deletion has. What is still not let go of by then loses its finalizer all the same, and is named with
what is left.

Each step looks at what is there, so doing it again after a death in the middle goes on from where it was. Installed
again, Tidegate takes up the resources as new: a pause pauses again; a run that was put back is not begun again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kubernetes.client import ApiClient

from tidegate.clock import SystemClock
from tidegate.connection.first_looks import LIMIT_S
from tidegate.kube.api import default_api_client
from tidegate.kube.loop import LevelLoop
from tidegate.kube.ports import (
    CONNECTIONS,
    PAUSES,
    POLICIES,
    RESETS,
    Conflict,
    Kind,
    KubeEvent,
    KubeFailure,
    NotFound,
    Object,
    label_of,
    name_of,
    namespace_of,
)
from tidegate.kube.uninstall_client import LeavingClient, Named, own_finalizers
from tidegate.pause.release import LEFT_BEHIND
from tidegate.resources.base import has_readable_status, read_status
from tidegate.resources.conditions import PAUSED, STALLED, find_condition, stalled, with_condition
from tidegate.resources.pause import PausePhase, PauseStatus
from tidegate.running import Operator, Replaced
from tidegate.service.settings import Settings
from tidegate.wiring.operator import build

_log = logging.getLogger(__name__)

UNINSTALLED: Final = "Uninstalled"

_LOOK_S: Final = 0.5
_MARGIN_S: Final = 10.0
"""Beyond what a deletion may take, for taking the finalizers off."""

_ATTEMPTS: Final = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Leave:
    """What is asked for. ``deployments``: the operator's, one a shard; none: it runs no more, or somebody else ends it.

    ``pods_limit_s``: how long its pods may take to end.
    """

    deployments: tuple[Named, ...] = ()
    pods_limit_s: float = 90.0


class _Client(LeavingClient):
    """Keeps in mind what was left behind, by resource, and says of a pause that it is left before it is."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.warnings: dict[str, str] = {}

    def record(self, body: Object, happening: KubeEvent) -> None:
        if happening.reason in LEFT_BEHIND:
            self.warnings[_what(body)] = happening.message
        super().record(body, happening)

    def set_finalizers(self, kind: Kind, body: Object, finalizers: Sequence[str]) -> Object:
        if own_finalizers(body) and not own_finalizers({"metadata": {"finalizers": finalizers}}):
            # Without one nobody looks at it again, neither this process nor, should this one die, the next attempt.
            body = self.say_goodbye(kind, body)
        return super().set_finalizers(kind, body, finalizers)

    def say_goodbye(self, kind: Kind, body: Object) -> Object:
        """Say in a pause's status that nothing sees to it any more. One that can't be read says so already."""
        if kind != PAUSES or not has_readable_status(PauseStatus, body):
            return body
        status = _status(body, self.warnings.get(_what(body), "")).to_json()
        return body if status == body.get("status") else self.replace_status(kind, body, status)


async def uninstall(settings: Settings, leave: Leave) -> bool:
    """Whether all was let go of, so that nothing stays closed. Raises ``KubeFailure`` where the API server can't be
    used: then nothing is known, and it has to be done again; and ``Replaced`` where an operator that still runs took
    over: it would undo what is done here."""
    clock = SystemClock()
    since = clock.now()
    clients: list[_Client] = []

    def open_kube(api_client: ApiClient, *_: Any) -> _Client:
        clients.append(_Client(api_client, clock, settings.namespaces, since))
        return clients[-1]

    if leave.deployments:
        await _end_operator(_Client(default_api_client(), clock, settings.namespaces, since), leave)
    # It takes no part in an election: it is the only one, or fences whoever is not. It is of no shard, but for all.
    operator = build(settings.model_copy(update={"lease": "", "shards": 1, "shard": 0}), open_kube)
    (kube,) = clients
    operator.servers.start()
    try:
        connections = await _call(kube.list, CONNECTIONS)
        for body in connections:
            operator.connections.notice(None, body)
        opened_s = asyncio.get_running_loop().time()
        left = await _let_go(operator, kube, settings.deletion_limit_s + _MARGIN_S)
        # Also where no resource holds anything: one that is gone, or a process that died, may have left something.
        await _reached(operator, connections, opened_s + min(LIMIT_S, settings.deletion_limit_s))
        await operator.sweeper.sweep(settle_s=0)
    finally:
        await operator.stop()
    if operator.replaced.is_set():
        raise Replaced(operator.why_replaced)
    return not left


def _tell(left: Mapping[str, str]) -> None:
    for what, why in sorted(left.items()):
        _log.error("LEFT BEHIND: %s: %s", what, why)
    if left:
        _log.error(
            "%d resource(s) could not be let go of: partitions may stay paused, and workloads at 0. What to do, once "
            "Kafka answers: install Tidegate again, wait until these resources are Ready, and uninstall it; or install "
            "it again and delete them. See docs/how-to/install.md",
            len(left),
        )


async def _end_operator(kube: LeavingClient, leave: Leave) -> None:
    selectors = {each: await _call(kube.scale_to_zero, each.namespace, each.name) for each in leave.deployments}
    loop = asyncio.get_running_loop()
    until = loop.time() + leave.pods_limit_s
    for deployment, selector in selectors.items():
        namespace, name = deployment.namespace, deployment.name
        if selector is None:
            _log.info("Deployment %s/%s is not there: no operator runs", namespace, name)
            continue
        while await _call(kube.pods, namespace, selector):
            if loop.time() > until:
                # On a node that is lost, perhaps. What both do is fenced and idempotent; one that lives on would only
                # begin again what is undone here.
                _log.warning("the operator's pods are still there after %.0f s: going on", leave.pods_limit_s)
                return
            await asyncio.sleep(_LOOK_S)
        _log.info("the operator of Deployment %s/%s has ended", namespace, name)


async def _let_go(operator: Operator, kube: _Client, limit_s: float) -> Mapping[str, str]:
    """Undo everything, at the latest in ``limit_s``. What is left, and why."""
    begun = [(kind, body) for kind in (PAUSES, RESETS) for body in await _held(kube, kind)]
    loops: Mapping[Kind, LevelLoop] = {PAUSES: operator.pauses, RESETS: operator.resets}
    for kind, body in begun:
        _log.info("%s: letting go", _what(body))
        loops[kind].notice(None, body)
    loop = asyncio.get_running_loop()
    until = loop.time() + limit_s
    held = begun
    while held and loop.time() < until and not operator.replaced.is_set():
        await asyncio.sleep(_LOOK_S)
        try:
            held = [(kind, body) for kind in loops for body in await _held(kube, kind)]
        except KubeFailure as failure:
            _log.warning("%s; again in %.1f s", failure, _LOOK_S)
    if operator.replaced.is_set():
        raise Replaced(operator.why_replaced)
    left = {_what(body): f"it was not let go of within {limit_s:.0f} s" for _, body in held}
    left |= {what: why for what, why in kube.warnings.items() if what in {_what(body) for _, body in begun}}
    for each in loops.values():
        await each.stop()
    # Before the finalizers go: without them the next attempt does not look at these again, should this one fail now.
    _tell(left)
    kube.warnings |= left
    # Policies: of an earlier version, which ran resets in policies themselves.
    for kind, body in [*begun, *((POLICIES, body) for body in await _held(kube, POLICIES))]:
        await _take_off(kube, kind, body)
    return left


async def _reached(operator: Operator, connections: Sequence[Object], until_s: float) -> None:
    """Once all these connections are, or at ``until_s`` of the loop's clock: of the others it is said that nobody
    looked at them."""
    loop = asyncio.get_running_loop()
    while True:
        away = [body for body in connections if not _is_reached(operator, body)]
        if not away or loop.time() >= until_s:
            break
        await asyncio.sleep(_LOOK_S)
    for body in away:
        _log.warning(
            "%s could not be reached: if anything is held through it by what is gone, it stays so. See "
            "docs/how-to/release-held-partitions.md",
            _what(body),
        )


def _is_reached(operator: Operator, connection: Object) -> bool:
    live = operator.live.get(namespace_of(connection), name_of(connection))
    return live is not None and live.trouble is None


async def _held(kube: LeavingClient, kind: Kind) -> list[Object]:
    return [body for body in await _call(kube.list, kind) if own_finalizers(body)]


async def _take_off(kube: _Client, kind: Kind, body: Object) -> None:
    """What finalizers are left."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            fresh = await _call(kube.get, kind, namespace_of(body), name_of(body))
            own = own_finalizers(fresh)
            if not own:
                return
            others = [name for name in fresh["metadata"]["finalizers"] if name not in own]
            await _call(kube.set_finalizers, kind, fresh, others)
            return
        except NotFound:
            return
        except Conflict:
            if not attempts_left:
                raise


def _status(body: Object, trouble: str) -> PauseStatus:
    status = read_status(PauseStatus, body)
    before = find_condition(status.conditions, STALLED)
    if not trouble and before is not None and before.reason == UNINSTALLED:
        return status  # said by an attempt that died just then; what it has left it alone knew
    message = "Tidegate was uninstalled; installed again, it takes this up anew" + (f"; {trouble}" if trouble else "")
    stamp: dict[str, Any] = {"generation": int(body["metadata"]["generation"]), "now": SystemClock().now()}
    conditions = stalled(status.conditions, reason=UNINSTALLED, message=message, **stamp)
    paused = None if trouble else False
    conditions = with_condition(conditions, PAUSED, paused, reason=UNINSTALLED, message=message, **stamp)
    phase = PausePhase.DEGRADED if trouble else PausePhase.RESUMED
    return status.model_copy(update={"conditions": conditions, "phase": phase})


def _what(body: Object) -> str:
    return f"{body['kind']} {label_of(body)}"


async def _call(call: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, functools.partial(call, *arguments))
