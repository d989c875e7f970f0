"""What the environment says to the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate_agent.start import Options, RuleError, parse_max_age, parse_new_partitions

AGENT = "TIDEGATE_AGENT"
"""``1``: consumers of this process are managed. Off by default."""

CONTROL_TOPIC = "TIDEGATE_CONTROL_TOPIC"
"""The control topic, as the ``KafkaConnection`` names it; ``__tidegate`` by default."""

ACK_TOPIC = "TIDEGATE_ACK_TOPIC"
"""The ack topic, as the ``KafkaConnection`` names it; by default the control topic's name followed by ``_acks``."""

ON_UNREACHABLE = "TIDEGATE_ON_UNREACHABLE"
"""What happens to partitions whose gate cannot be read. ``wait``, the default: they wait until it can be read.
``open``: they are delivered after ``TIDEGATE_UNREACHABLE_AFTER_S``."""

UNREACHABLE_AFTER = "TIDEGATE_UNREACHABLE_AFTER_S"
"""With ``open``: after how many seconds such partitions are delivered; 30 by default."""

LATEST_MAX_AGE = "TIDEGATE_LATEST_MAX_AGE"
"""For consumers that do not set it themselves: ``auto.offset.reset.latest.max.age``, in milliseconds; -1 (off) by
default."""

NEW_PARTITIONS = "TIDEGATE_NEW_PARTITIONS"
"""For consumers that do not set it themselves: ``auto.offset.reset.new.partitions``, which is ``earliest``, ``latest``,
or ``none`` (not set), the default."""

GROUP = "TIDEGATE_GROUP"
"""The group to whose consumers the two options above apply, as one process may have consumers of several groups.
Absent: every group."""

STRICT = "TIDEGATE_STRICT"
"""``true``: the process refuses to start if one of these variables, or an option for new partitions in a consumer's own
configuration, has an invalid value. ``false``, the default: the invalid value is logged."""

LOG = "TIDEGATE_LOG"
"""``DEBUG``, ``INFO``, ``WARNING`` or ``ERROR``: the agent logs to standard error. Absent: it logs to the logger
``tidegate_agent``, which the application configures."""

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_ON = ("1", "true", "on", "yes")
_OFF = ("", "0", "false", "off", "no")


class SettingsError(ValueError):
    """A variable has a value that means nothing; the message names it and says which values it may have."""


@dataclass(frozen=True)
class Settings:
    """How the agent behaves in this process.

    ``open_unread``: partitions whose gate could not be read for ``unreachable_after_s`` seconds are delivered all the
    same; otherwise they wait. ``new_partitions``: for consumers whose own configuration says nothing of these; of this
    ``group``, where one is named.
    ``log_level``: of the agent's own handler on standard error; ``None``: the agent's log records go where the
    application sends its own. ``complaints``: of variables that mean nothing and count as absent, for people.
    """

    control_topic: str = "__tidegate"
    open_unread: bool = False
    unreachable_after_s: float = 30.0
    new_partitions: Options = field(default_factory=Options)
    group: str | None = None
    log_level: str | None = None
    complaints: tuple[str, ...] = ()
    ack_topic: str | None = None

    @property
    def acks_topic(self) -> str:
        """Where acks are written."""
        return self.ack_topic or self.control_topic + "_acks"

    def new_partitions_of(self, group: str) -> Options:
        """What the environment says about new partitions of this group."""
        return self.new_partitions if self.group in (None, group) else Options()

    @property
    def open_unread_after_s(self) -> float | None:
        """After how long partitions are delivered whose gate cannot be read; ``None``: they wait."""
        return self.unreachable_after_s if self.open_unread else None


def is_on(environ: Mapping[str, str]) -> bool:
    """Whether the agent is to run in this process. Raises ``SettingsError``."""
    value = environ.get(AGENT, "").strip().lower()
    if value in _ON:
        return True
    if value in _OFF:
        return False
    raise SettingsError(f"{AGENT} must be 1 or 0, not {value!r}")


def is_strict(environ: Mapping[str, str]) -> bool:
    """Whether the process is to refuse what ``read_settings`` raises. A value that means nothing does not say so."""
    return environ.get(STRICT, "").strip().lower() in _ON


def read_settings(environ: Mapping[str, str]) -> Settings:
    """The settings; what is absent or empty has its default. Raises ``SettingsError``.

    Where the process is strict there are no complaints: they are raised as well.
    """
    default = Settings()
    strict = environ.get(STRICT, "").strip().lower()
    if strict not in _ON + _OFF:
        raise SettingsError(f"{STRICT} must be true or false, not {strict!r}")
    unread = (environ.get(ON_UNREACHABLE) or "wait").strip().lower()
    if unread not in ("wait", "open"):
        raise SettingsError(f"{ON_UNREACHABLE} must be wait or open, not {unread!r}")
    level = (environ.get(LOG) or "").strip().upper() or None
    if level is not None and level not in _LEVELS:
        raise SettingsError(f"{LOG} must be one of {', '.join(_LEVELS)}, not {level!r}")
    new_partitions, complaints = _new_partitions(environ)
    if complaints and is_strict(environ):
        raise SettingsError("; ".join(complaints))
    return Settings(
        control_topic=(environ.get(CONTROL_TOPIC) or default.control_topic).strip(),
        ack_topic=(environ.get(ACK_TOPIC) or "").strip() or None,
        open_unread=unread == "open",
        unreachable_after_s=_seconds(environ, UNREACHABLE_AFTER, default.unreachable_after_s),
        new_partitions=new_partitions,
        group=environ.get(GROUP) or None,
        log_level=level,
        complaints=tuple(f"{complaint}: it counts as absent" for complaint in complaints),
    )


def _new_partitions(environ: Mapping[str, str]) -> tuple[Options, tuple[str, ...]]:
    """What is said of new partitions, and what is wrong with it: a mistake here must not open gates."""
    age, new = (environ.get(name) or "" for name in (LATEST_MAX_AGE, NEW_PARTITIONS))
    options, complaints = Options(), []
    try:
        options = Options(latest_max_age_ms=parse_max_age(age.strip()) if age.strip() else None)
    except RuleError as error:
        complaints.append(f"{LATEST_MAX_AGE} {error}")
    try:
        if new.strip().lower() not in ("", "none"):
            options = Options(new_partitions=parse_new_partitions(new)).over(options)
    except RuleError as error:
        complaints.append(f"{NEW_PARTITIONS} {error}, or none")
    return options, tuple(complaints)


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    text = (environ.get(name) or "").strip()
    if not text:
        return default
    try:
        value = float(text) if "_" not in text else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise SettingsError(f"{name} must be a number of seconds from 0, not {text!r}")
    return value
