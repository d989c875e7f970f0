"""What changes in a pod that is injected, as a JSON patch (RFC 6902), or why it can't be. Pure.

An init container copies the agents into an ``emptyDir``, the chosen containers get it mounted, ``PYTHONPATH`` prefixed
and ``JAVA_TOOL_OPTIONS`` extended; variables that a container has already stay as they are. The init container asks for
no more than PodSecurity's ``restricted`` allows, runs as whoever the pod runs as unless that is root, and leaves the
pod's QoS class alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final, assert_never

from tidegate.inject.eligibility import PodRefusal
from tidegate.inject.environment import Agent, Injection

SETTING: Final = "tidegate.io/injected"
"""Annotation of a pod that was injected: ``Injection.setting``."""

NAME: Final = "tidegate-agent"
"""Of the init container and of the volume."""
MOUNT: Final = "/tidegate"
PATH: Final = f"{MOUNT}/{Agent.PYTHON}"
JAVA_OPTION: Final = f"-javaagent:{MOUNT}/{Agent.JAVA}/tidegate-agent.jar"
INSTALL: Final = "/opt/tidegate/agent/install"
"""In the agents' image; takes the folder to copy to, and which agents. Without the latter it copies Python's, which is
all that images of 0.1.0 have.
"""

WINDOWS: Final = "WindowsNotSupported"
UNKNOWN_CONTAINER: Final = "UnknownContainer"
TOO_MANY: Final = "TooManyContainers"
NAME_TAKEN: Final = "NameTaken"
MOUNT_TAKEN: Final = "MountTaken"
PYTHONPATH_NOT_KNOWN: Final = "PythonPathNotKnown"
JAVA_OPTIONS_NOT_KNOWN: Final = "JavaToolOptionsNotKnown"

_CONTAINERS: Final = 64
"""That one pod may have injected: what is added to each is sent back to the API server."""

_SYSTEM: Final = "kubernetes.io/os"
_WINDOWS: Final = "windows"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
_AGENT_USER: Final = 10001
_KINDS: Final = ("requests", "limits")
_COUNTED: Final = ("cpu", "memory", "ephemeral-storage")
"""Of a container's resources; others are devices, and huge pages."""

_PYTHONPATH: Final = "PYTHONPATH"
_JAVA_OPTIONS: Final = "JAVA_TOOL_OPTIONS"
_JAVA_OPTIONS_BEFORE: Final = "TIDEGATE_JAVA_TOOL_OPTIONS"
"""What a container takes from elsewhere is taken under this name, to be extended."""

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


def image_of(pod: Pod) -> str | None:
    """The agents' image that a pod was injected from; ``None``: it has no agent of ours."""
    return next((str(container.get("image")) for container in _our_containers(pod)), None)


def is_injected(pod: Pod, injection: Injection) -> bool:
    """Whether the pod was injected with just this, and nothing of it has been lost since."""
    if setting_of(pod) != injection.setting:
        return False
    if not injection.agents:
        told = [_has_variables(one.container, injection) for one in _all(pod) if _may_be_meant(one, injection)]
        return all(told) if injection.containers else any(told)
    there = _mounting(pod, injection)
    told = [_has_variables(one.container, injection) for one in there]
    started = (_is_started(one.container, agent) for one in there for agent in injection.agents)
    return bool(_our_containers(pod)) and bool(there) and all(told) and all(started)


def patch_for(pod: Pod, injection: Injection, image: AgentImage) -> Patch | PodRefusal:
    """What makes the pod have the injection. Of an injected one that comes by again: what has been lost of it."""
    is_again = bool(_our_containers(pod))
    if is_injected(pod, injection) or (is_again and setting_of(pod) != injection.setting):
        return Patch(())
    chosen = _mounting(pod, injection) or _chosen(pod, injection.containers)
    if isinstance(chosen, PodRefusal):
        return replace(chosen, policies=injection.policies)
    agents = injection.agents
    refusal = _refused_by_pod(pod) if agents and not is_again else None
    refusal = refusal or (_refused_by_mounts(chosen) if agents else None) or _refused_by_environment(chosen, agents)
    if refusal is not None:
        return replace(refusal, policies=injection.policies)
    operations = [*_annotate(pod, injection.setting)]
    for one in chosen:
        operations += _set_environment(one, injection)
        if agents and not _has_ours(one.container):
            mount = {"name": NAME, "mountPath": MOUNT, "readOnly": True}
            operations += _append(one.container, one.path, "volumeMounts", [mount])
    if agents and not is_again:
        operations += _bring(pod, agents, image)
    return Patch(tuple(operations))


def _bring(pod: Pod, agents: Sequence[Agent], image: AgentImage) -> list[Operation]:
    spec = pod["spec"]
    volume = {"name": NAME, "emptyDir": {"sizeLimit": "32Mi"}}
    # Last, since it moves the others; first in the pod, for init containers may be consumers as well (sidecars).
    container = _init_container(pod, agents, image)
    first: Operation = {"op": "add", "path": "/spec/initContainers", "value": [container]}
    if spec.get("initContainers"):
        first = {"op": "add", "path": "/spec/initContainers/0", "value": container}
    return [*_append(spec, "/spec", "volumes", [volume]), first]


# --- which containers -------------------------------------------------------------------------------------------------


def _chosen(pod: Pod, names: Sequence[str]) -> tuple[_Chosen, ...] | PodRefusal:
    """The containers by name, init containers too; without names the main one."""
    if len(names) > _CONTAINERS:
        return PodRefusal(TOO_MANY, f"{len(names)} containers are named; at most {_CONTAINERS} can be injected")
    by_name = {str(one.container.get("name")): one for one in _all(pod)}
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


def _all(pod: Pod) -> list[_Chosen]:
    return [
        _Chosen(f"/spec/{field}/{number}", container)
        for field in ("initContainers", "containers")
        for number, container in enumerate(pod["spec"].get(field) or ())
    ]


def _mounting(pod: Pod, injection: Injection) -> tuple[_Chosen, ...]:
    """The containers that were chosen when the pod was injected. Others may have put a container before them since.
    Empty where it was not, or where others have taken the mount from one of them.
    """
    ours = [str(container.get("name")) for container in _our_containers(pod)]
    found = {
        str(one.container.get("name")): one
        for one in _all(pod)
        if ours and one.container.get("name") not in ours and _has_ours(one.container)
    }
    return tuple(found.values()) if found.keys() >= set(injection.containers) else ()


def _has_ours(container: Mapping[str, Any]) -> bool:
    return any(mount.get("name") == NAME for mount in container.get("volumeMounts") or ())


def _refused_by_pod(pod: Pod) -> PodRefusal | None:
    """Why agents can't be brought into this pod."""
    spec = pod["spec"]
    if _is_windows(spec):
        return PodRefusal(WINDOWS, "the agent's image runs on Linux, but this pod runs on Windows")
    names = [c.get("name") for c in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))]
    names += [volume.get("name") for volume in spec.get("volumes") or ()]
    if NAME in names:
        return PodRefusal(NAME_TAKEN, f"the pod has a container or volume {NAME} of its own: give it another name")
    return None


def _refused_by_mounts(chosen: Iterable[_Chosen]) -> PodRefusal | None:
    """Why agents can't be brought into these containers."""
    for one in chosen:
        others = [mount for mount in one.container.get("volumeMounts") or () if mount.get("name") != NAME]
        mounts = [str(mount.get("mountPath", "")).rstrip("/") for mount in others]
        taken = [path for path in mounts if path == MOUNT or path.startswith(f"{MOUNT}/")]
        if taken:
            name = one.container.get("name")
            return PodRefusal(MOUNT_TAKEN, f"container {name} mounts something of its own at {taken[0]}: move it")
    return None


def _refused_by_environment(chosen: Iterable[_Chosen], agents: Sequence[Agent]) -> PodRefusal | None:
    """Why agents can't be started in these containers. A container may have no value for what it takes from elsewhere
    and calls optional: then nothing stands for it, and Java would not start.
    """
    for one in chosen:
        name, variables = one.container.get("name"), _variables(one.container)
        if Agent.PYTHON in agents and variables.get(_PYTHONPATH, {}).get("valueFrom"):
            return PodRefusal(
                PYTHONPATH_NOT_KNOWN,
                f"container {name} takes {_PYTHONPATH} from elsewhere (valueFrom), so the agent's path can't be put "
                "before it: give its value, or put $(OTHER) of another variable into it",
            )
        source = variables.get(_JAVA_OPTIONS, {}).get("valueFrom") or {}
        is_optional = any(isinstance(said, Mapping) and said.get("optional") for said in source.values())
        if Agent.JAVA in agents and is_optional:
            return PodRefusal(
                JAVA_OPTIONS_NOT_KNOWN,
                f"container {name} takes {_JAVA_OPTIONS} from elsewhere (valueFrom), where it is optional, so it can't "
                "be extended: make it required, or give its value",
            )
    return None


def _is_windows(spec: Mapping[str, Any]) -> bool:
    """By whatever may say so: no pod has to say it in more than one way."""
    parts = (spec, *(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    terms = affinity.get("nodeSelectorTerms") or ()
    return (
        _WINDOWS in ((spec.get("os") or {}).get("name"), (spec.get("nodeSelector") or {}).get(_SYSTEM))
        or any((part.get("securityContext") or {}).get("windowsOptions") for part in parts)
        or (bool(terms) and all(_is_for_windows(term) for term in terms))
    )


def _is_for_windows(term: Mapping[str, Any]) -> bool:
    """Whether no other nodes are meant by this part of an affinity."""
    return any(
        (row.get("key"), row.get("operator"), row.get("values")) == (_SYSTEM, "In", [_WINDOWS])
        for row in term.get("matchExpressions") or ()
    )


def _our_containers(pod: Pod) -> list[Mapping[str, Any]]:
    return [
        container
        for container in pod["spec"].get("initContainers") or ()
        if container.get("name") == NAME and list(container.get("command") or ())[:1] == [INSTALL]
    ]


def _variables(container: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """By name; of those that are there twice the last counts, as for the container."""
    return {str(variable.get("name")): variable for variable in container.get("env") or ()}


def _may_be_meant(one: _Chosen, injection: Injection) -> bool:
    """Whether the container may be one that was chosen: others may have put a container before the main one since."""
    return not injection.containers or one.container.get("name") in injection.containers


def _has_variables(container: Mapping[str, Any], injection: Injection) -> bool:
    """Whatever their values: those that the container had itself have stayed."""
    return injection.environment.keys() <= _variables(container).keys()


def _is_started(container: Mapping[str, Any], agent: Agent) -> bool:
    """Whether processes of this container will load the agent."""
    variables = _variables(container)
    match agent:
        case Agent.PYTHON:
            return PATH in str(variables.get(_PYTHONPATH, {}).get("value") or "").split(":")
        case Agent.JAVA:
            return JAVA_OPTION in str(variables.get(_JAVA_OPTIONS, {}).get("value") or "").split()
        case _:
            assert_never(agent)


# --- what changes -----------------------------------------------------------------------------------------------------


def _annotations(pod: Pod) -> Mapping[str, Any]:
    return (pod.get("metadata") or {}).get("annotations") or {}


def _annotate(pod: Pod, setting: str) -> list[Operation]:
    if _annotations(pod):
        return [{"op": "add", "path": f"/metadata/annotations/{SETTING.replace('/', '~1')}", "value": setting}]
    return [{"op": "add", "path": "/metadata/annotations", "value": {SETTING: setting}}]


def _set_environment(one: _Chosen, injection: Injection) -> list[Operation]:
    there = _variables(one.container)
    added = [_named(name, value) for name, value in injection.environment.items() if name not in there]
    operations: list[Operation] = []
    waiting = [agent for agent in injection.agents if not _is_started(one.container, agent)]
    if Agent.PYTHON in waiting:
        if _PYTHONPATH in there:
            operations += _prefix_path(one)
        else:
            added.append(_named(_PYTHONPATH, PATH))
    if Agent.JAVA in waiting:
        if _JAVA_OPTIONS in there:
            # After all that replaces, since it may move the variables that follow.
            operations += _extend_options(one)
        else:
            added.append(_named(_JAVA_OPTIONS, JAVA_OPTION))
    return operations + _append(one.container, one.path, "env", added)


def _prefix_path(one: _Chosen) -> list[Operation]:
    path, variable = _place(one, _PYTHONPATH)
    before = str(variable.get("value") or "")
    value = _named(_PYTHONPATH, f"{PATH}:{before}" if before else PATH)
    return [{"op": "replace", "path": path, "value": value}]


def _extend_options(one: _Chosen) -> list[Operation]:
    """Ours comes after what is there: other agents are loaded before it, as they would be without it."""
    path, variable = _place(one, _JAVA_OPTIONS)
    if variable.get("valueFrom"):
        folder, _, number = path.rpartition("/")
        extended = _named(_JAVA_OPTIONS, f"$({_JAVA_OPTIONS_BEFORE}) {JAVA_OPTION}")
        return [
            {"op": "replace", "path": path, "value": {**variable, "name": _JAVA_OPTIONS_BEFORE}},
            {"op": "add", "path": f"{folder}/{int(number) + 1}", "value": extended},
        ]
    before = str(variable.get("value") or "")
    value = _named(_JAVA_OPTIONS, f"{before} {JAVA_OPTION}" if before else JAVA_OPTION)
    return [{"op": "replace", "path": path, "value": value}]


def _place(one: _Chosen, name: str) -> tuple[str, Mapping[str, Any]]:
    """The JSON pointer of a variable that is there, and the variable."""
    numbered = enumerate(one.container["env"])
    number, variable = max(((n, v) for n, v in numbered if str(v.get("name")) == name), key=itemgetter(0))
    return f"{one.path}/env/{number}", variable


def _named(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def _append(parent: Mapping[str, Any], path: str, field: str, values: Sequence[Mapping[str, Any]]) -> list[Operation]:
    if not values:
        return []
    if not parent.get(field):
        return [{"op": "add", "path": f"{path}/{field}", "value": list(values)}]
    return [{"op": "add", "path": f"{path}/{field}/-", "value": value} for value in values]


def _init_container(pod: Pod, agents: Sequence[Agent], image: AgentImage) -> dict[str, Any]:
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
        "image": image.image,
        "imagePullPolicy": image.pull_policy,
        "command": [INSTALL, MOUNT, *(() if agents == (Agent.PYTHON,) else agents)],
        "securityContext": security,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": NAME, "mountPath": MOUNT}],
    }
    resources = _resources(pod)
    return container | ({"resources": resources} if resources else {})


def _resources(pod: Pod) -> dict[str, Any]:
    """Those of the pod's first container: what a LimitRange takes of that it takes of ours, the pod's QoS class is what
    it was, and nothing is added to what the pod asks for, as containers run after the init container.
    """
    containers: Sequence[Mapping[str, Any]] = pod["spec"].get("containers") or ()
    given: Mapping[str, Any] = (containers[0].get("resources") if containers else None) or {}
    found = {kind: {n: value for n, value in (given.get(kind) or {}).items() if n in _COUNTED} for kind in _KINDS}
    return {kind: values for kind, values in found.items() if values}
