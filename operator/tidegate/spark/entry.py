"""The entry points behind ``spark_templates/jobs/``."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from tidegate.audit.codec import attribution_of
from tidegate.clock import SystemClock
from tidegate.find.parity import as_json
from tidegate.jobs.application import MIRROR_ORDER_VARIABLE, ORDER_VARIABLE, STORE_VARIABLE
from tidegate.jobs.runner import FORGED_EXIT
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka_client.group_requests import group_types
from tidegate.kafka_client.wire import Wire
from tidegate.kube.api import NoCluster, default_api_client
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import KubeFailure
from tidegate.offset_backup.document import Result, backup_of
from tidegate.offset_backup.manifest import encode
from tidegate.offset_backup.order import Order, decode_order
from tidegate.offset_backup.store import SCHEME, OrderFailure, OrderStore
from tidegate.reset.binding import Binding
from tidegate.reset.document import StoreFailure
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import (
    ByDuration,
    FromGroup,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTimestamp,
)
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.store import ForeignRun, ForgedRun, RunNotFound, StaleAttempt
from tidegate.reset.stores import open_store
from tidegate.spark.backup import Taken, take_backup
from tidegate.spark.expression import spoken
from tidegate.spark.files import StorageFailure
from tidegate.spark.fleet import carry_out_fleet
from tidegate.spark.job import carry_out
from tidegate.spark.mirror import OtherOrder, copy_in_tasks, ordered
from tidegate.spark.parity import compare_logs, find_pairs
from tidegate.spark.planning import plan_groups, rehearse, summarise
from tidegate.spark.session import start_session
from tidegate.versions import NewerVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECTION = TypeAdapter(Connection)


def reset(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Carry out one run. The exit code is for people: what was achieved is in the run's store.

    0: it ended, well or not, or waits for approval, or another attempt has taken over. 2: bad usage. 1: it has to be
    gone on with by another job. 3: the run's document is not the one that the operator named, and nothing of it is
    obeyed.
    """
    location = arguments[0] if arguments else environment.get(STORE_VARIABLE, "")
    if not location:
        _say(f"name the run's store as an argument or in {STORE_VARIABLE}")
        return 2
    spark = start_session("tidegate-reset")
    try:
        binding = Binding.of_environment(environment)
        of_fleet = open_store(location).load().request.fleet is not None
        attribution = attribution_of(environment)
        carried_out = carry_out_fleet if of_fleet else carry_out
        result = carried_out(spark, location, SystemClock(), binding, attribution)
    except ForgedRun as forged:
        _say(str(forged))
        return FORGED_EXIT
    except StaleAttempt as stale:
        _say(f"another attempt has taken over: {stale}")
        return 0
    except (StoreFailure, RunNotFound, ForeignRun, KafkaFailure, ValueError) as failure:
        _say(str(failure))
        return 1
    finally:
        spark.stop()
    _say("the plan waits for approval" if result is None else f"{result.phase}: {result.reason}: {result.message}")
    return 0


def plan(arguments: Sequence[str]) -> int:
    """Plan many groups with one target; write the plans, print a summary. 1: at least one group has no plan."""
    options = _plan_options().parse_args(arguments)
    now = datetime.now(UTC)
    try:
        connection, target = _connection(options), _target(options)
    except ValueError as error:
        _say(str(error))
        return 2
    spark = start_session("tidegate-plan")
    try:
        groups = list(options.group)
        if options.groups_file is not None:
            groups += [line.strip() for line in options.groups_file.read_text().splitlines() if line.strip()]
        if options.pattern is not None:
            groups += list_groups(spark, connection, options.pattern)
        selections = tuple(_selection(topic) for topic in options.topic)
        requests = [
            RunRequest(f"plan/{group}", "plan", group, connection, selections, target) for group in sorted({*groups})
        ]
        if not requests:
            _say("no group matches")
            return 1
        # Kept: written, and looked at again, but planned once only.
        plans = plan_groups(spark, requests, now, spans=options.spans).persist()
        writer = plans.write.mode("overwrite")
        if options.format == "parquet":
            writer.parquet(str(options.output))
        else:
            # CSV knows no lists: one note a line of the cell.
            plans.withColumn("notes", _joined_notes()).write.mode("overwrite").csv(str(options.output), header=True)
        if options.summary:
            summarise(plans).show(len(requests), truncate=False)
        return 0 if plans.where("refused is not null or failure is not null").isEmpty() else 1
    finally:
        spark.stop()


def parity(arguments: Sequence[str]) -> int:
    """Compare topics of two clusters offset by offset, and print JSON. 1: offsets may not be carried over. 2: bad
    usage, or records that can't be read: nothing is known of them."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
    from pyspark.errors import PySparkException

    options = _parity_options().parse_args(arguments)
    try:
        here = _read_connection(options.bootstrap_servers, options.connection, "")
        there = _read_connection(options.other_bootstrap_servers, options.other_connection, "other-")
        pairs = find_pairs(here, there, [_selection(topic) for topic in options.topic], options.alias)
    except (ValueError, KafkaFailure) as error:
        _say(str(error))
        return 2
    spark = start_session("tidegate-parity")
    try:
        found = compare_logs(spark, here, there, pairs)
    except PlanRefused as refused:
        _say(refused.message)
        return 2
    except (ValueError, PySparkException, Py4JJavaError) as error:
        _say(f"records can't be read: {spoken(error)}")
        return 2
    finally:
        spark.stop()
    sys.stdout.write(as_json(found))
    return 0 if all(p.carries_over for p in found) else 1


def backup(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Make the backup that an order (JSON) asks for, and print its manifest. 2: bad usage. 1: there is none.

    By the operator: an order in a ConfigMap, where the result is stored as well; 0 also where another order has taken
    its place. By hand: a file.
    """
    location = arguments[0] if arguments else ""
    try:
        if not location.startswith(SCHEME):
            order = decode_order(Path(location).read_bytes())
            taken = _taken(order)
        else:
            expected, clock = environment.get(ORDER_VARIABLE, ""), SystemClock()
            store = OrderStore(location)
            order = store.order(expected)
            try:
                taken = _taken(order)
            except (KafkaFailure, StorageFailure) as failure:
                store.finish(expected, Result(clock.now(), failure=str(failure)))
                raise
            store.finish(expected, Result(clock.now(), backup_of(taken.manifest, order.storage), failure=taken.left))
    except (OSError, ValueError) as error:
        _say(f"{location or 'the order'}: {error}")
        return 2
    except StaleAttempt as stale:
        _say(str(stale))
        return 0
    except (KafkaFailure, StorageFailure, OrderFailure, RunNotFound) as failure:
        _say(str(failure))
        return 1
    if taken.left:
        _say(f"what is over was not removed: {taken.left}")
    sys.stdout.write(encode(taken.manifest).decode() + "\n")
    return 0


def mirror(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Copy what the order of an OffsetMirror asks for, for as long as that is asked. 0: it is not asked for any more.
    2: bad usage. 1: it has to be gone on with by another job. 3: the order is not the one that the operator named."""
    location = arguments[0] if arguments else ""
    spark = start_session("tidegate-mirror")
    try:
        kube = KubeClient(default_api_client(), SystemClock())
        reasons = copy_in_tasks(spark, ordered(kube, location, environment.get(MIRROR_ORDER_VARIABLE, "")))
    except OtherOrder as other:
        _say(str(other))
        return FORGED_EXIT
    except ValueError as bad:
        _say(str(bad))
        return 2
    except (KubeFailure, NoCluster, NewerVersion) as failure:
        _say(str(failure))
        return 1
    finally:
        spark.stop()
    for reason in sorted({*reasons}):
        _say(reason)
    return 0


def _taken(order: Order) -> Taken:
    spark = start_session("tidegate-backup")
    try:
        return take_backup(spark, order, SystemClock())
    finally:
        spark.stop()


def warm_up(output: str) -> int:
    """Make Spark load what a plan needs, and write the rows to a folder."""
    spark = start_session("tidegate-warm-up")
    try:
        spark.sparkContext.parallelize([0], 1).flatMap(lambda n: [n]).collect()
        plans = rehearse(spark).persist()
        plans.write.mode("overwrite").parquet(output)
        plans.toArrow()
        return 0
    finally:
        spark.stop()


def list_groups(spark: SparkSession, connection: Connection, pattern: str) -> list[str]:
    """The cluster's groups whose id matches a pattern with ``*``, listed in an executor. Streams and share groups have
    no offsets a reset may change: they are left out."""

    def look(_: int) -> list[str]:
        with closing(Wire(connection)) as wire:
            return [g for g, kind in group_types(wire).items() if kind not in ("streams", "share")]

    found = spark.sparkContext.parallelize([0], 1).flatMap(look).collect()
    return [group for group in found if fnmatchcase(group, pattern)]


def _joined_notes() -> object:
    from pyspark.sql.functions import array_join

    return array_join("notes", "\n")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _plan_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("plan.py", description=plan.__doc__)
    parser.add_argument("--bootstrap-servers", help="host:port,… of a cluster without TLS and authentication")
    parser.add_argument("--connection", type=Path, help="JSON of a connection; it names the files with secrets")
    parser.add_argument("--group", action="append", default=[], help="a group; may be given again")
    parser.add_argument("--groups-file", type=Path, help="a group a line")
    parser.add_argument("--pattern", help="groups whose id matches, with *")
    parser.add_argument("--topic", action="append", default=[], help="name[:0,1,…] or a pattern with *; default: all")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true")
    target.add_argument("--to-latest", action="store_true")
    target.add_argument("--to-offset", type=int)
    target.add_argument("--to-datetime", help="ISO 8601 with an offset, 2026-11-20T14:00:00Z")
    target.add_argument("--by-duration", type=float, metavar="SECONDS")
    target.add_argument("--shift-by", type=int)
    target.add_argument("--to-group", help="where another group stands")
    parser.add_argument("--spans", action="store_true", help="look up the records' timestamps as well")
    parser.add_argument("--summary", action="store_true", help="print a line a group")
    parser.add_argument("--output", type=Path, required=True, help="folder to write, replaced when it is there")
    parser.add_argument("--format", choices=("parquet", "csv"), default="parquet")
    return parser


def _parity_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("parity.py", description=parity.__doc__)
    for prefix, which in (("", "cluster"), ("other-", "cluster that offsets come from")):
        parser.add_argument(f"--{prefix}bootstrap-servers", help=f"host:port,… of a {which} without TLS or SASL")
        parser.add_argument(f"--{prefix}connection", type=Path, help=f"JSON of a connection to the {which}")
    parser.add_argument("--topic", action="append", required=True, help="name[:0,1,…]; may be given again")
    parser.add_argument("--alias", help="MirrorMaker 2's alias of the other cluster: topics here are ALIAS.TOPIC")
    return parser


def _connection(options: argparse.Namespace) -> Connection:
    return _read_connection(options.bootstrap_servers, options.connection, "")


def _read_connection(servers: str | None, file: Path | None, prefix: str) -> Connection:
    if file is not None and servers is None:
        try:
            return _CONNECTION.validate_json(file.read_bytes())
        except (OSError, ValidationError) as error:
            raise ValueError(f"{file} is not a connection: {error}") from error
    if servers is None or file is not None:
        raise ValueError(f"give either --{prefix}bootstrap-servers or --{prefix}connection")
    return Connection(servers)


def _target(options: argparse.Namespace) -> Target:
    if options.to_earliest:
        return ToEarliest()
    if options.to_latest:
        return ToLatest()
    if options.to_offset is not None:
        return ToOffset(options.to_offset)
    if options.by_duration is not None:
        return ByDuration(timedelta(seconds=options.by_duration))
    if options.shift_by is not None:
        return ShiftBy(options.shift_by)
    if options.to_group is not None:
        return FromGroup(options.to_group)
    at = datetime.fromisoformat(options.to_datetime)
    if at.tzinfo is None:
        raise ValueError(f"--to-datetime {options.to_datetime}: say which time zone, for example with a Z")
    return ToTimestamp(at)


def _selection(text: str) -> Selection:
    topic, _, partitions = text.partition(":")
    if not partitions:
        return Selection(topic)
    if not re.fullmatch(r"\d+(,\d+)*", partitions):
        raise ValueError(f"--topic {text}: partitions are numbers with commas between them")
    return Selection(topic, frozenset(map(int, partitions.split(","))))
