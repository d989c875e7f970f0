"""Which settings of Spark a policy may give to its jobs (``spec.spark.sparkConf``): an allow-list.

A job runs beside the connection's Secrets, with a service account that may create pods, and Spark has well over a
thousand settings. Dozens of them name code in one way or another (a Python module, a class, a jar, a script, a file
that is loaded), and each release adds more, so a list of the forbidden ones is never complete. What stands here was
looked at one by one: numbers, sizes, times and switches, and to which nodes pods may go. None can name code, a class, a
file, an image, an account, a volume or an address.

The CRD's rules are made of it, so that the API server refuses what the operator would refuse. An administrator may add
names (``TIDEGATE_SPARK_ALLOWED_CONF``, ``spark.allowedConf`` of the chart, which adds them to the CRD's rule as well).
He is trusted: what such a name lets its users do is not judged here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Form:
    """What a value looks like. ``kind``: what such values are called; ``pattern``: of the whole value, for RE2 and
    Python alike; ``says``: the same in words, behind "must be"."""

    kind: str
    pattern: str
    says: str


_LABEL_VALUE: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"

SIZE: Final = Form(
    "sizes", r"[1-9][0-9]{0,11}([kmgtKMGT]?[bB]|[kmgtKMGT])?", "a number with its unit, such as 512m or 2g"
)
COUNT: Final = Form("counts", r"[1-9][0-9]{0,6}", "a whole number from 1 to 9999999")
FRACTION: Final = Form("shares", r"[0-9]{1,2}([.][0-9]{1,4})?", "a number such as 0.4")
DURATION: Final = Form(
    "times", r"[0-9]{1,7}(ms|s|m|min|h)", "a whole number with its unit, such as 120s (ms, s, m, min or h)"
)
SWITCH: Final = Form("switches", r"true|false", "true or false")
CPU: Final = Form(
    "amounts of processors", r"[0-9]{1,4}([.][0-9]{1,3})?|[1-9][0-9]{0,6}m", "a quantity such as 2, 0.5 or 500m"
)
LEVEL: Final = Form("log levels", r"ERROR|WARN|INFO", "ERROR, WARN or INFO (below that, records may be logged)")
NAME: Final = Form(
    "names and labels",
    _LABEL_VALUE,
    "letters, digits, '-', '_' and '.', with a letter or digit at both ends, at most 63",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that a policy may give. ``reason``: what it is good for."""

    name: str
    form: Form
    reason: str


ALLOWED: Final = (
    # memory
    Setting("spark.driver.memoryOverhead", SIZE, "Memory of the driver's pod beside the heap."),
    Setting("spark.driver.memoryOverheadFactor", FRACTION, "The same as a share of the heap."),
    Setting("spark.driver.maxResultSize", SIZE, "How much the executors may send to the driver before a job fails."),
    Setting("spark.executor.memoryOverhead", SIZE, "Memory of an executor's pod beside the heap; Python runs in it."),
    Setting("spark.executor.memoryOverheadFactor", FRACTION, "The same as a share of the heap."),
    Setting("spark.executor.pyspark.memory", SIZE, "A bound on the memory of an executor's Python."),
    Setting("spark.memory.fraction", FRACTION, "The share of the heap that is for execution and storage."),
    Setting("spark.memory.storageFraction", FRACTION, "The share of that which storage keeps."),
    Setting("spark.kubernetes.local.dirs.tmpfs", SWITCH, "Scratch space in memory, on nodes with slow or small disks."),
    # processors
    Setting("spark.default.parallelism", COUNT, "Into how many tasks work is cut where nothing else says so."),
    Setting("spark.kubernetes.driver.request.cores", CPU, "What the driver's pod asks for, if less than whole cores."),
    Setting("spark.kubernetes.driver.limit.cores", CPU, "What the driver's pod may use, where a quota asks for it."),
    Setting("spark.kubernetes.executor.request.cores", CPU, "What an executor's pod asks for."),
    Setting("spark.kubernetes.executor.limit.cores", CPU, "What an executor's pod may use."),
    # queries
    Setting("spark.sql.shuffle.partitions", COUNT, "How many partitions a join or an aggregate has."),
    Setting("spark.sql.adaptive.enabled", SWITCH, "Whether plans are changed by what was seen while they run."),
    Setting("spark.sql.adaptive.coalescePartitions.enabled", SWITCH, "Whether that makes few partitions of many."),
    Setting("spark.sql.adaptive.advisoryPartitionSizeInBytes", SIZE, "How large those are meant to be."),
    Setting("spark.sql.files.maxPartitionBytes", SIZE, "How much of a backup's files one task reads."),
    Setting("spark.sql.execution.arrow.maxRecordsPerBatch", COUNT, "How many rows go to Python at once: its memory."),
    Setting("spark.kafka.consumer.cache.capacity", COUNT, "How many Kafka consumers an executor keeps."),
    Setting("spark.reducer.maxSizeInFlight", SIZE, "How much a task fetches of a shuffle at once: its memory."),
    # the network
    Setting("spark.network.timeout", DURATION, "How long the job's pods wait for each other."),
    Setting("spark.rpc.askTimeout", DURATION, "How long one question between them may take."),
    Setting("spark.executor.heartbeatInterval", DURATION, "How often executors report to the driver."),
    # scheduling
    Setting("spark.locality.wait", DURATION, "How long a task waits for the executor that has its data."),
    Setting("spark.scheduler.minRegisteredResourcesRatio", FRACTION, "The share of executors that work begins with."),
    Setting("spark.scheduler.maxRegisteredResourcesWaitingTime", DURATION, "How long it waits for that share."),
    Setting("spark.kubernetes.allocation.batch.size", COUNT, "How many executors' pods are asked for at once."),
    Setting("spark.kubernetes.allocation.batch.delay", DURATION, "How long between two such requests."),
    Setting("spark.kubernetes.scheduler.name", NAME, "Which of the cluster's schedulers places the pods."),
    # the log
    Setting("spark.log.level", LEVEL, "How much executors, and the driver while it starts, write to their logs."),
)
"""All but node selectors, in the order in which the reference shows them."""

NODE_SELECTOR: Final = (
    r"spark[.]kubernetes[.]((driver|executor)[.])?node[.]selector[.]"
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
"""Names that end in a node's label; the value is the label's."""

MAX_VALUE: Final = 256

VALUE: Final = Form("values", r"[ -~]{0,256}", "at most 256 printable ASCII characters, and no '${'")
"""Any value, whatever the setting, also of those that an administrator allowed. Spark replaces ``${...}`` in values."""

NAME_PATTERN: Final = r"spark[.][A-Za-z0-9_.-]{1,247}"
"""What an administrator may allow."""

FIXED: Final = frozenset({"spark.speculation", "spark.task.maxFailures", "spark.sql.variable.substitute"})
"""What nobody may set: a run must not be applied twice, and conditions must not read the environment."""

_FORMS: Final = {setting.name: setting.form for setting in ALLOWED}
_FIELDS: Final = {
    f"spark.{name}": f"spec.spark.{name}"
    for name in ("driver.cores", "driver.memory", "executor.instances", "executor.cores", "executor.memory")
}


def refusals(spark_conf: Mapping[str, Any], also: Collection[str] = ()) -> list[str]:
    """Why a policy may not set these: a sentence for each refused setting, none where all is well.

    ``also``: names that the administrator has added.
    """
    return [why for name, value in sorted(spark_conf.items()) for why in _refusal(name, value, also)]


def _refusal(name: str, value: Any, also: Collection[str]) -> Iterator[str]:
    form = _FORMS.get(name) or (NAME if re.fullmatch(NODE_SELECTOR, name) else None)
    if form is None and (name not in also or name in FIXED):
        if name in _FIELDS:
            yield f"{name} can't be set: use {_FIELDS[name]}"
        else:
            yield (
                f"{name} can't be set: it is not on the list of settings that a policy may give "
                "(docs/reference/spark-conf.md); remove it, or ask who runs the operator to allow it"
            )
    elif not isinstance(value, str):
        yield f"{name} must be a string: put {value!r} in quotes"
    elif form is not None and not re.fullmatch(form.pattern, value):
        yield f"{name} is {value[:80]!r}: it must be {form.says}"
    elif not is_value(value):
        yield f"{name} has a value that can't be given: it must be {VALUE.says}"


def is_value(value: str) -> bool:
    """Whether a setting of any name may have this value."""
    return re.fullmatch(VALUE.pattern, value) is not None and "${" not in value


def allowed_names(text: str) -> frozenset[str]:
    """Names with commas between them, as an administrator gives them. Raises ``ValueError`` that says which is none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if not re.fullmatch(NAME_PATTERN, name):
            raise ValueError(f"{name!r} is not the name of a Spark setting, such as spark.shuffle.compress")
        if name in FIXED:
            raise ValueError(f"{name} can't be allowed: Tidegate's own value always holds")
    return frozenset(names)
