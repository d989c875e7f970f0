"""What changes in a pod that is injected, as a JSON patch (RFC 6902), or why it can't be. Pure.

An init container copies the agent into an ``emptyDir``, the chosen containers get it mounted and ``PYTHONPATH``
prefixed; variables that a container has already stay as they are. The init container asks for no more than
PodSecurity's ``restricted`` allows, runs as whoever the pod runs as unless that is root, and leaves the pod's QoS class
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tidegate.inject.eligibility import PodRefusal
from tidegate.inject.environment import Injection
from tidegate.resources.features import ConsumerFormat

SETTING: Final = "tidegate.io/injected"
"""Annotation of a pod that was injected: ``Injection.setting``."""

NAME: Final = "tidegate-agent"
"""Of the init container and of the volume."""
MOUNT: Final = "/tidegate"
PATH: Final = f"{MOUNT}/python"
INSTALL: Final = "/opt/tidegate/agent/install"
"""In the agent's image; takes the folder to copy to."""

WINDOWS: Final = "WindowsNotSupported"
UNKNOWN_CONTAINER: Final = "UnknownContainer"
TOO_MANY: Final = "TooManyContainers"
NAME_TAKEN: Final = "NameTaken"
MOUNT_TAKEN: Final = "MountTaken"
PYTHONPATH_NOT_KNOWN: Final = "PythonPathNotKnown"

_CONTAINERS: Final = 64
"""That one pod may have injected: what is added to each is sent back to the API server."""

_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
_AGENT_USER: Final = 10001
_REQUESTS: Final = {"cpu": "10m", "memory": "64Mi"}
_LIMITS: Final = {"cpu": "500m", "memory": "64Mi"}
_GUARANTEED: Final = {"cpu": "100m", "memory": "64Mi"}

Pod = Mapping[str, Any]
Operation = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AgentImage:
    """Where the init container comes from. ``pull_policy``: as ``Container.imagePullPolicy``."""

    image: str
    pull_policy: str


@dataclass(frozen=True, slots=True)
class Patch:
    """Empty ``operations``: the pod was injected before."""

    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A container that gets something. ``path``: its JSON pointer."""

    path: str
    container: Mapping[str, Any]


def setting_of(pod: Pod) -> str | None:
    """The setting that a pod was injected with; ``None``: with none."""
    found = _annotations(pod).get(SETTING)
    return None if found is None else str(found)


def is_injected(pod: Pod, injection: Injection) -> bool:
    """Whether the pod was injected with just this."""
    complete = _has_our_container(pod) if injection.format is ConsumerFormat.PYTHON else True
    return complete and setting_of(pod) == injection.setting


def patch_for(pod: Pod, injection: Injection, agent: AgentImage) -> Patch | PodRefusal:
    """What makes the pod have the injection. Nothing, where an injected one comes by again."""
    with_agent = injection.format is ConsumerFormat.PYTHON
    if _has_our_container(pod) or is_injected(pod, injection):
        return Patch(())
    chosen = _chosen(pod, injection.containers)
    if isinstance(chosen, PodRefusal):
        return replace(chosen, policies=injection.policies)
    refusal = _refusal(pod, chosen) if with_agent else None
    if refusal is not None:
        return replace(refusal, policies=injection.policies)
    operations = [*_annotate(pod, injection.setting)]
    for one in chosen:
        operations += _set_environment(one, injection, with_agent=with_agent)
        if with_agent:
            mount = {"name": NAME, "mountPath": MOUNT, "readOnly": True}
            operations += _append(one.container, one.path, "volumeMounts", [mount])
    if with_agent:
        spec = pod["spec"]
        operations += _append(spec, "/spec", "volumes", [{"name": NAME, "emptyDir": {"sizeLimit": "32Mi"}}])
        # Last, since it moves the others; first in the pod, for init containers may be consumers as well (sidecars).
        container = _init_container(pod, agent)
        if spec.get("initContainers"):
            operations.append({"op": "add", "path": "/spec/initContainers/0", "value": container})
        else:
            operations.append({"op": "add", "path": "/spec/initContainers", "value": [container]})
    return Patch(tuple(operations))


# --- which containers -------------------------------------------------------------------------------------------------


def _chosen(pod: Pod, names: Sequence[str]) -> tuple[_Chosen, ...] | PodRefusal:
    """The containers by name, init containers too; without names the main one."""
    if len(names) > _CONTAINERS:
        return PodRefusal(TOO_MANY, f"{len(names)} containers are named; at most {_CONTAINERS} can be injected")
    by_name = {
        str(container.get("name")): _Chosen(f"/spec/{field}/{number}", container)
        for field in ("initContainers", "containers")
        for number, container in enumerate(pod["spec"].get(field) or ())
    }
    unknown = [name for name in names if name not in by_name]
    if unknown:
        return PodRefusal(
            UNKNOWN_CONTAINER, f"the pod has no container {', '.join(unknown)}; it has {', '.join(by_name)}"
        )
    if names:
        return tuple(by_name[name] for name in names)
    containers = [str(container.get("name")) for container in pod["spec"].get("containers") or ()]
    if not containers:
        return PodRefusal(UNKNOWN_CONTAINER, "the pod has no containers")
    default = _annotations(pod).get(_DEFAULT_CONTAINER)
    return (by_name[default if default in containers else containers[0]],)


def _refusal(pod: Pod, chosen: Iterable[_Chosen]) -> PodRefusal | None:
    """Why the agent can't be brought into these containers."""
    spec = pod["spec"]
    if _is_windows(spec):
        return PodRefusal(WINDOWS, "the agent's image runs on Linux, and this pod on Windows")
    names = [c.get("name") for c in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))]
    names += [volume.get("name") for volume in spec.get("volumes") or ()]
    if NAME in names:
        return PodRefusal(NAME_TAKEN, f"the pod has a container or volume {NAME} of its own: give it another name")
    for one in chosen:
        name = one.container.get("name")
        mounts = [str(mount.get("mountPath", "")).rstrip("/") for mount in one.container.get("volumeMounts") or ()]
        taken = [path for path in mounts if path == MOUNT or path.startswith(f"{MOUNT}/")]
        if taken:
            return PodRefusal(MOUNT_TAKEN, f"container {name} mounts something of its own at {taken[0]}: move it")
        for variable in one.container.get("env") or ():
            if variable.get("name") == "PYTHONPATH" and variable.get("valueFrom"):
                return PodRefusal(
                    PYTHONPATH_NOT_KNOWN,
                    f"container {name} takes PYTHONPATH from elsewhere (valueFrom), so nothing can be put before it: "
                    "give its value, or put $(OTHER) of another variable into it",
                )
    return None


def _is_windows(spec: Mapping[str, Any]) -> bool:
    return "windows" in (
        (spec.get("os") or {}).get("name"),
        (spec.get("nodeSelector") or {}).get("kubernetes.io/os"),
    ) or bool((spec.get("securityContext") or {}).get("windowsOptions"))


def _has_our_container(pod: Pod) -> bool:
    return any(
        container.get("name") == NAME and list(container.get("command") or ())[:1] == [INSTALL]
        for container in pod["spec"].get("initContainers") or ()
    )


# --- what changes -----------------------------------------------------------------------------------------------------


def _annotations(pod: Pod) -> Mapping[str, Any]:
    return (pod.get("metadata") or {}).get("annotations") or {}


def _annotate(pod: Pod, setting: str) -> list[Operation]:
    if _annotations(pod):
        return [{"op": "add", "path": f"/metadata/annotations/{SETTING.replace('/', '~1')}", "value": setting}]
    return [{"op": "add", "path": "/metadata/annotations", "value": {SETTING: setting}}]


def _set_environment(one: _Chosen, injection: Injection, *, with_agent: bool) -> list[Operation]:
    there = {str(variable.get("name")): number for number, variable in enumerate(one.container.get("env") or ())}
    added = [{"name": name, "value": value} for name, value in injection.environment.items() if name not in there]
    operations: list[Operation] = []
    if with_agent and "PYTHONPATH" in there:
        number = there["PYTHONPATH"]
        before = str(one.container["env"][number].get("value") or "")
        value = f"{PATH}:{before}" if before else PATH
        operations.append({"op": "replace", "path": f"{one.path}/env/{number}", "value": _named("PYTHONPATH", value)})
    elif with_agent:
        added.append(_named("PYTHONPATH", PATH))
    return operations + _append(one.container, one.path, "env", added)


def _named(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def _append(parent: Mapping[str, Any], path: str, field: str, values: Sequence[Mapping[str, Any]]) -> list[Operation]:
    if not values:
        return []
    if not parent.get(field):
        return [{"op": "add", "path": f"{path}/{field}", "value": list(values)}]
    return [{"op": "add", "path": f"{path}/{field}/-", "value": value} for value in values]


def _init_container(pod: Pod, agent: AgentImage) -> dict[str, Any]:
    security: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    # A pod that runs as root says so for all of its containers; ours must not.
    if (pod["spec"].get("securityContext") or {}).get("runAsUser") == 0:
        security["runAsUser"] = _AGENT_USER
    container: dict[str, Any] = {
        "name": NAME,
        "image": agent.image,
        "imagePullPolicy": agent.pull_policy,
        "command": [INSTALL, MOUNT],
        "securityContext": security,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": NAME, "mountPath": MOUNT}],
    }
    resources = _resources(pod)
    return container | ({"resources": resources} if resources else {})


def _resources(pod: Pod) -> dict[str, Any]:
    """So that the pod's QoS class is what it was: ``Guaranteed`` needs limits that are the requests in each container,
    and ``BestEffort`` that no container has either.
    """
    spec = pod["spec"]
    given = [c.get("resources") or {} for f in ("initContainers", "containers") for c in spec.get(f) or ()]
    if not any(resources.get("requests") or resources.get("limits") for resources in given):
        return {}
    if all(_is_guaranteed(resources) for resources in given):
        return {"requests": dict(_GUARANTEED), "limits": dict(_GUARANTEED)}
    return {"requests": dict(_REQUESTS), "limits": dict(_LIMITS)}


def _is_guaranteed(resources: Mapping[str, Any]) -> bool:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    return all(name in limits and requests.get(name, limits[name]) == limits[name] for name in ("cpu", "memory"))
