"""Writes the tables of ``docs/explanation/scaling.md``: ``.venv/bin/python docs/generate_scaling.py [--check]``.

They are made of formulas and of what these are calibrated by: constants of the code, and what was measured
(``docs/benchmarks/*.json`` and ``scale.md``). ``--check`` writes nothing and ends with 1 when the page is not what it
should be.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidegate.control.codec import encode_key, encode_value
from tidegate.control.records import Ack, AckKey, PartitionKey, PartitionSeen
from tidegate.discovery.state import least_interval_s
from tidegate.discovery.watch import CLOCK_S
from tidegate.kafka.model import Topic
from tidegate.policy.memory import SHARDS as DOCUMENTS
from tidegate.service.settings import Settings

DOCS: Final = Path(__file__).resolve().parent
PAGE: Final = DOCS / "explanation" / "scaling.md"
BENCHMARKS: Final = DOCS / "benchmarks"

CALIBRATED_BY: Final = 1_000
"""Resources of the ladder, at most."""

COMPARED: Final = ("cpu %", "rss MiB", "kafka requests/s", "api reads/min")
_BLOCK: Final = re.compile(r"<!-- model ([a-z]+) -->.*?<!-- end \1 -->", re.DOTALL)
_MARKS: Final = re.compile(r"<!-- model ([a-z]+) -->(?:(?!<!-- model).)*?<!-- end ([a-z]+) -->", re.DOTALL)
DAY_S: Final = 86_400.0
MOST_CORES: Final = 0.5
"""Of a process at rest: the rest is for runs, starts and changes."""


@dataclass(frozen=True, slots=True)
class Size:
    """Per cluster but for ``clusters``. ``partitions``: of each topic; ``of_group``: partitions a group reads."""

    clusters: int
    groups: int
    agents: int
    topics: int
    partitions: int
    brokers: int
    of_group: int

    @property
    def all_partitions(self) -> int:
        return self.topics * self.partitions


ASKED: Final = Size(clusters=50, groups=2_000, agents=2_000, topics=5_000, partitions=10, brokers=6, of_group=10)
"""100,000 groups on 50 clusters, with 100,000 agents."""

# --- what it is calibrated by -----------------------------------------------------------------------------------------

REQUESTS: Final[Mapping[str, tuple[Callable[[int], int], str]]] = {
    "poll": (lambda _: 1, "one Metadata (`kafka_client/topic_watch.py`)"),
    "cluster": (lambda _: 1, "one Metadata (`client.cluster`)"),
    "topics": (lambda _: 1, "one Metadata (`client.topics`)"),
    "group_ids": (lambda brokers: brokers, "a ListGroups to each broker (`list_groups`)"),
    "groups": (lambda brokers: 2 * brokers, "two describe requests to each coordinator (`group_descriptions.py`)"),
    "commits_of": (lambda brokers: brokers, "an OffsetFetch to each coordinator (`stable_commits_of`)"),
    "control_read": (lambda _: 3, "one Metadata, one ListOffsets for each topic (`control_reader.py`)"),
    "write_clock": (lambda _: 4, "Metadata, AddPartitionsToTxn, Produce, EndTxn (`fenced_writer.py`)"),
    "capabilities": (lambda _: 0, "cached (`KafkaCapabilities`)"),
}
"""By call of the ports, how many requests it is, by the cluster's brokers, and where that is read from."""

RECORDS_BYTES: Final = 0.32e6 / 50_000
RECORDS_CPU_S: Final = 0.6 / 50_000
LOOK_CPU_S: Final = 0.040 / 50_000
"""Of one ``partition`` record compressed on the control topic and of reading it; of one partition in a look, for the
broker. ``docs/benchmarks/discovery.md``: 50,000 are 0.32 MB, 0.6 s and 40 ms."""

LOG_SEGMENT_BYTES: Final = 100 * 1024**2
OFFSETS_PARTITIONS: Final = 50
RETENTION_S: Final = 7 * DAY_S
"""Kafka's defaults of ``offsets.topic.segment.bytes``, ``.num.partitions`` and ``offsets.retention.minutes``."""


@dataclass(frozen=True, slots=True)
class Measured:
    """``simulated``: ``make bench NAME=many-clusters``; ``readers``: ``make bench NAME=readers``, by case, ours and
    with fetches that wait longer; ``ladder``: the settled rungs of ``make bench NAME=scale``, by column."""

    simulated: Mapping[str, Any]
    readers: Mapping[str, tuple[float, float]]
    ladder: Sequence[Mapping[str, float]]

    @classmethod
    def read(cls, folder: Path = BENCHMARKS) -> Measured:
        """Raises ``OSError`` and ``ValueError``."""
        readers = json.loads((folder / "readers.json").read_text(encoding="utf-8"))
        return cls(
            json.loads((folder / "many-clusters.json").read_text(encoding="utf-8")),
            {row["case"]: (row["ours"], row["anchor"]) for row in readers["rows"]},
            ladder((folder / "scale.md").read_text(encoding="utf-8")),
        )

    def calls_per_s(self, call: str) -> float:
        """Of one cluster."""
        everything = self.simulated["all"]
        return float(everything["at rest"].get(call, 0.0)) / int(everything["clusters"])

    @property
    def request_cpu_s(self) -> float:
        """Of the operator for a request to Kafka and what goes with it, at most: with all that a few resources cost."""
        empty, few = self.ladder[0], self.calibration[0]
        return (few["cpu %"] - empty["cpu %"]) / 100 / few["kafka requests/s"]

    @property
    def calibration(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """The rungs that tell what one resource more costs: the first that has any, since the empty operator looks at
        nothing, and the largest of up to 1,000."""
        rungs = [rung for rung in self.ladder if 0 < rung["resources"] <= CALIBRATED_BY]
        return rungs[0], rungs[-1]

    @property
    def rungs_named(self) -> str:
        few, many = self.calibration
        return f"{few['resources']:,.0f} and {many['resources']:,.0f} resources"

    def of_a_resource(self, column: str) -> float:
        """What one resource more costs."""
        few, many = self.calibration
        return (many[column] - few[column]) / (many["resources"] - few["resources"])

    def predicted(self, column: str, resources: float) -> float:
        few, _ = self.calibration
        return few[column] + self.of_a_resource(column) * (resources - few["resources"])


def ladder(page: str) -> list[Mapping[str, float]]:
    """The rungs with one connection that have settled, by size. Raises ``ValueError`` where fewer than two can be
    calibrated by, or there is no empty operator."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    head, _, *body = rows
    found = [dict(zip(head, cells, strict=True)) for cells in body if "through" not in cells[0]]
    rungs = [{k: float(v.replace(",", "")) for k, v in row.items()} for row in found if "–" not in row.values()]
    rungs.sort(key=lambda rung: rung["resources"])
    if not rungs or rungs[0]["resources"] or sum(0 < rung["resources"] <= CALIBRATED_BY for rung in rungs) < 2:
        raise ValueError(
            f"docs/benchmarks/scale.md needs the empty operator and two rungs of up to {CALIBRATED_BY} resources that "
            "have settled"
        )
    return rungs


# --- the model: pure --------------------------------------------------------------------------------------------------


def look_bytes(size: Size) -> float:
    """What a look at all of a cluster's topics brings."""
    return least_interval_s([Topic("", "", size.partitions)] * size.topics) * 2**20


def look_interval_s(size: Size) -> float:
    return max(0.2, look_bytes(size) / 2**20)


def requests_per_s(size: Size, measured: Measured) -> dict[str, float]:
    """Of the operator to one cluster at rest, by call."""
    found = {name: measured.calls_per_s(name) * of(size.brokers) for name, (of, _) in REQUESTS.items()}
    return {**found, "poll": 1 / look_interval_s(size)}


def start_records(size: Size, *, for_each_partition: bool) -> int:
    """``partition`` records that an agent reads when it starts."""
    return size.all_partitions if for_each_partition else size.topics


def agents_requests_per_s(size: Size, measured: Measured, *, ours: bool) -> float:
    """To one cluster's brokers at rest: to the control topic's leader by far most of them."""
    return size.agents * sum(measured.readers[case][not ours] for case in measured.readers if case != "all")


def log_bytes_at_start(size: Size, vacant: float) -> float:
    """What the coordinators' logs have of the groups without members, each of which is read apart, at most."""
    return size.groups * vacant * LOG_SEGMENT_BYTES


def record_bytes(key: Any, value: Any) -> int:
    return len(encode_key(key)) + len(encode_value(value) or b"")


# --- the page ---------------------------------------------------------------------------------------------------------

Row = tuple[str, ...]


def table(head: Row, rows: Sequence[Row]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows))


def _n(value: float, digits: int = 3) -> str:
    """A number for people: three digits that count."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{float(f'{value:.{digits}g}'):,.0f}"
    return f"{value:.{digits}g}"


def _bytes(value: float) -> str:
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if value >= 10**power:
            return f"{_n(value / 10**power)} {unit}"
    return f"{_n(value)} B"


def operator_table(size: Size, measured: Measured) -> str:
    found = requests_per_s(size, measured)
    rows: list[Row] = [
        (f"`{name}`", _n(found[name]), _n(size.clusters * found[name]), REQUESTS[name][1])
        for name in sorted(found, key=lambda name: -found[name])
        if found[name]
    ]
    total = sum(found.values())
    rows.append(("together", _n(total), _n(size.clusters * total), ""))
    return table(("call", "requests/s, one cluster", f"{size.clusters} clusters", "which requests"), rows)


def brokers_table(size: Size, measured: Measured) -> str:
    seconds, ours = look_interval_s(size), agents_requests_per_s(size, measured, ours=True)
    a_record = record_bytes(PartitionKey("topic-00001", "a" * 22, 9), PartitionSeen(initial=True))
    ack = record_bytes(AckKey("group-00001", "topic-00001", 9), Ack(123_456, 1_234_567, "consumer-1-" + "a" * 36))
    start = start_records(size, for_each_partition=False)
    rows: list[Row] = [
        (
            "checks for new partitions",
            f"every {_n(seconds)} s, {_bytes(look_bytes(size))} each",
            f"{_bytes(look_bytes(size) / seconds)}/s; {_n(100 * LOOK_CPU_S * size.all_partitions / seconds)} % of a "
            "broker's core",
        ),
        (
            "agents at rest",
            f"{_n(ours / size.agents)} requests/s each: Fetch, ListOffsets, Metadata",
            f"{_n(ours)} requests/s, most of them to the leader of the control topic",
        ),
        (
            "the broker's time for agents",
            f"a record every {CLOCK_S:g} s",
            f"{_n(size.agents / CLOCK_S)} deliveries/s; these end most of the fetches above",
        ),
        (
            "an agent starts",
            f"{start:,} `partition` records: {_bytes(start * RECORDS_BYTES)} on the wire ({_bytes(start * a_record)} "
            f"without compression), {_n(start * RECORDS_CPU_S)} s of its CPU",
            f"all at once: {_bytes(size.agents * start * RECORDS_BYTES)} from one broker",
        ),
        (
            "acks",
            f"one for each partition on assignment, {ack} B",
            f"all at once: {size.groups * size.of_group:,} records, {_bytes(size.groups * size.of_group * ack)}; "
            "compaction leaves as many keys, which each reader of acks reads from the start",
        ),
        (
            "transactional ids",
            "one of the operator for each KafkaConnection; one for each group that is reset, until the brokers remove "
            "it (7 days)",
            f"at most {size.groups + 1:,}, if every group is reset within a week",
        ),
        (
            "renewals by `guard`",
            "two requests for each group without members, twice per retention of the brokers",
            f"{_n(2 * size.groups / (RETENTION_S / 2))} requests/s with 7 days, if no group had any members",
        ),
        (
            "connections",
            f"operator: {size.brokers} for requests, 1 for new partitions, 3 for reading the control topic; "
            "an agent: 4",
            f"{size.brokers + 4 + 4 * size.agents:,}",
        ),
    ]
    return table(("what", "each", "one cluster"), rows)


def kubernetes_table(size: Size, measured: Measured) -> str:
    settings = Settings()
    rows: list[Row] = [
        ("Lease", f"{_n(60 / settings.lease_retry_s)} writes/min for each Lease that is held"),
        (
            "status of a policy for many groups",
            f"{measured.simulated['all']['status writes/min']:g}/min at rest (simulated); at "
            "most 6/min while its figures change, each under 10 kB, for 10 groups as for 10,000",
        ),
        (
            "memory of policies",
            f"at most {DOCUMENTS} ConfigMaps for each policy, each written at most every 5 min while groups "
            f"make progress: {_n(size.clusters * DOCUMENTS / 300)} writes/s",
        ),
        (
            "listings for `/healthz`",
            f"6 kinds every {settings.health_interval_s:g} s: {_n(6 * 60 / settings.health_interval_s)} reads/min",
        ),
        (
            "the webhook",
            "one call for each pod that is created, answered from memory; the replicas share these calls",
        ),
        (
            "a resource for a single group",
            f"{_n(max(0.0, measured.of_a_resource('api reads/min')), 2)} reads/min, "
            f"{_n(max(0.0, measured.of_a_resource('kafka requests/s')), 2)} requests/s to Kafka, "
            f"{_n(measured.of_a_resource('cpu %'), 2)} % of a core, {_n(measured.of_a_resource('rss MiB'), 2)} MiB "
            f"([ladder](../benchmarks/scale.md), from {measured.rungs_named}); one request serves many resources",
        ),
    ]
    return table(("what", "cost"), rows)


def ladder_table(measured: Measured) -> str:
    """What the model says of each rung of the ladder, beside what was measured there."""
    rows: list[Row] = []
    for rung in measured.ladder:
        cells = []
        is_predicted = rung["resources"] > 0 and rung not in measured.calibration
        for column in COMPARED:
            said = _n(measured.predicted(column, rung["resources"]))
            cells.append(f"{said} / {_n(rung[column])}" if is_predicted else _n(rung[column]))
        rows.append((f"{rung['resources']:,.0f}", *cells))
    return table(("resources", *(f"{column}: predicted / measured" for column in COMPARED)), rows)


def process_table(size: Size, measured: Measured) -> str:
    simulated = measured.simulated["all"]
    all_groups = size.clusters * size.groups
    of_a_group = simulated["cpu %"] / (simulated["clusters"] * simulated["groups"])
    requests = size.clusters * sum(requests_per_s(size, measured).values())
    cores = of_a_group * all_groups / 100 + requests * measured.request_cpu_s
    base = measured.ladder[0]["rss MiB"]
    rows: list[Row] = [
        (
            "CPU of groups at rest",
            f"{_n(all_groups / 60)} checked per second, each once a minute: {_n(of_a_group * all_groups)} % of a core "
            "without the Kafka client's work (simulated)",
        ),
        (
            "CPU of requests",
            f"{_n(requests)}/s at {_n(1000 * measured.request_cpu_s, 2)} ms: "
            f"{_n(100 * requests * measured.request_cpu_s)} % of a core (from the ladder)",
        ),
        (
            "memory",
            f"{_n(base)} MiB, and {_n(measured.simulated['bytes of a group'] / 1000)} kB for each group: "
            f"{_bytes(base * 2**20 + all_groups * measured.simulated['bytes of a group'])}",
        ),
        (
            "metrics",
            f"one series for each group with retention: {all_groups:,}, about {_bytes(all_groups * 130)} per scrape",
        ),
    ]
    needed = math.ceil(cores / MOST_CORES)
    rows.append(
        (
            "shards",
            f"{needed}, so that none takes more than half a core at rest: together they need {_n(cores)} cores, "
            "and a Python process can use only one",
        )
    )
    return table(("what", "one process for all"), rows)


def walls_table(size: Size, measured: Measured) -> str:
    before, after = (start_records(size, for_each_partition=each) for each in (True, False))
    looks = 5 * look_bytes(size), look_bytes(size) / look_interval_s(size)
    one_by_one = 2 * size.groups / 60
    together = measured.calls_per_s("commits_of") * size.brokers + measured.calls_per_s("topics")
    rows: list[Row] = [
        (
            "at its start, each agent read a record for each partition",
            f"{before:,} records, {_n(before * RECORDS_CPU_S)} s of CPU in each consumer",
            f"{after:,} records, {_n(after * RECORDS_CPU_S)} s: the highest partition that existed at first stands "
            "for those below it",
        ),
        (
            "all topics were checked five times a second, however many there were",
            f"{_bytes(looks[0])}/s from one cluster, {_bytes(size.clusters * looks[0])}/s from all",
            f"{_bytes(looks[1])}/s from one cluster at most, {_bytes(size.clusters * looks[1])}/s from all; a new "
            f"partition is found within {_n(look_interval_s(size))} s instead of 0.2 s",
        ),
        (
            "offsets and topics were read for each group of a policy separately, once a minute",
            f"{_n(one_by_one)} requests/s to one cluster, {_n(size.clusters * one_by_one)} to all",
            f"{_n(together)} to one cluster, {_n(size.clusters * together)} to all: 200 groups in one request",
        ),
    ]
    return table(("what", "before", "now"), rows)


def limits_table(size: Size, measured: Measured) -> str:
    simulated = measured.simulated["all"]
    requests = size.clusters * sum(requests_per_s(size, measured).values())
    all_groups, all_agents = size.clusters * size.groups, size.clusters * size.agents
    rows: list[Row] = [
        (
            "a process that starts checks all groups at once",
            f"{all_groups:,} groups: about {_n(3 * all_groups / 200)} requests, and for each group without members one "
            f"read of its coordinator's log (the simulation, in which no group has members, made "
            f"{simulated['at start'].get('log', 0):,}). If a tenth has no members: up to "
            f"{_bytes(log_bytes_at_start(size, 0.1))} from one cluster, where each log has an unfinished segment of "
            "100 MB",
            "read each of the 50 logs once for all of its groups",
        ),
        (
            "the first pass of a policy writes its ConfigMaps again after every 200 groups",
            f"{_n(simulated['documents at start'] / simulated['clusters'])} writes for each policy of "
            f"{simulated['groups']:,} groups, {_bytes(simulated['bytes stored at start'] / simulated['clusters'])}; "
            "only once: a restart writes none",
            "write them when all groups have been checked",
        ),
        (
            "one process, one interpreter",
            f"{_n(requests)} requests/s and {_n(all_groups / 60)} groups per second",
            "[shards](../how-to/shards.md)",
        ),
        (
            "every agent reads all of its cluster's records",
            f"{start_records(size, for_each_partition=False):,} at its start, and then each hold, run and claim of any "
            f"group: a pause of {size.of_group} partitions is delivered to {size.agents:,} agents",
            "several control topics: a KafkaConnection may have its own (`spec.controlTopic`)",
        ),
        (
            "the broker's time wakes every agent",
            f"{_n(all_agents / CLOCK_S)} deliveries/s on all clusters, even if there are no new topics",
            "let agents request it when a partition without an offset is assigned",
        ),
        (
            "each agent asks for new records twice a second",
            f"{_n(agents_requests_per_s(size, measured, ours=True))} requests/s to one cluster's brokers",
            "fetches that wait for 5 s (tested) would reduce this to "
            f"{_n(agents_requests_per_s(size, measured, ours=False))}; but a client has only one fetch per "
            "broker, so agents acknowledged holds seconds late. A separate connection for topics that change rarely",
        ),
        (
            "metrics for each group",
            f"{all_groups:,} series in one scrape",
            "`retention` for fewer groups, or shards",
        ),
    ]
    return table(("limit", f"at {size.clusters} clusters", "what would change it"), rows)


def coefficients_table(measured: Measured) -> str:
    simulated = measured.simulated["all"]
    rows: list[Row] = [
        (
            "calls of the operator, by cluster and by group",
            "counted with fakes, in simulated time",
            f"`make bench NAME=many-clusters`: {simulated['clusters']} clusters of {simulated['groups']:,} groups",
        ),
        ("requests of a call", "read from the code", "[the operator's requests](#the-operators-requests)"),
        (
            "requests of an agent at rest",
            "; ".join(f"{case} {_n(ours)}/s" for case, (ours, _) in measured.readers.items() if case != "all"),
            "`make bench NAME=readers`: counted by a broker",
        ),
        (
            "a `partition` record",
            f"{RECORDS_BYTES:.2g} B compressed, {RECORDS_CPU_S * 1e6:.2g} µs",
            "`make bench NAME=discovery`",
        ),
        ("a partition in a check", f"{LOOK_CPU_S * 1e6:.2g} µs of a broker", "`make bench NAME=discovery`"),
        ("a partition in a check, on the network", "43 B with three replicas", "Metadata v12; `least_interval_s`"),
        ("a resource for a single group", f"by {measured.rungs_named}", "`make bench NAME=scale`"),
        ("periods", "constants", "`CLOCK_S`, `Settings`, `_REST_MS`, read by the generator where they are named"),
    ]
    return table(("coefficient", "value", "source"), rows)


def tables(size: Size, measured: Measured) -> dict[str, str]:
    """By the name in their marks."""
    return {
        "walls": walls_table(size, measured),
        "limits": limits_table(size, measured),
        "brokers": brokers_table(size, measured),
        "operator": operator_table(size, measured),
        "process": process_table(size, measured),
        "kubernetes": kubernetes_table(size, measured),
        "ladder": ladder_table(measured),
        "coefficients": coefficients_table(measured),
    }


def page(text: str, made: Mapping[str, str]) -> str:
    """The text with these tables in it. Raises ``ValueError`` where a mark is missing, or one has no table."""
    if sorted(_MARKS.findall(text)) != sorted((name, name) for name in made):
        raise ValueError(f"{PAGE.name} has to have each of these marks once, and no other: {', '.join(sorted(made))}")
    return _BLOCK.sub(lambda found: f"<!-- model {found[1]} -->\n\n{made[found[1]]}\n\n<!-- end {found[1]} -->", text)


def main(arguments: Sequence[str]) -> int:
    """Write the page, or say that it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where it is out of date")
    check = parser.parse_args(arguments).check
    there = PAGE.read_text(encoding="utf-8")
    text = page(there, tables(ASKED, Measured.read()))
    if there == text:
        return 0
    if check:
        sys.stderr.write(f"{PAGE} is out of date: run .venv/bin/python docs/generate_scaling.py\n")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
