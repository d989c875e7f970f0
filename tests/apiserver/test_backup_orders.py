"""What a job does with its order's ConfigMap, on a real API server: nothing but the order it was started with."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes import client as kube

from support.operator_process import Resources
from tidegate.jobs.storage import S3
from tidegate.kafka.connection import Connection
from tidegate.offset_backup.document import (
    Asked,
    Backup,
    Document,
    Result,
    decode_document,
    digest,
    encode_document,
)
from tidegate.offset_backup.order import Order
from tidegate.offset_backup.store import OrderFailure, OrderStore
from tidegate.reset.store import RunNotFound, StaleAttempt

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
ORDER = Order(Connection("kafka:9092"), S3("backups", "kafka"), "uid", NOON, "p-backup-1")
MADE = Result(NOON, Backup(ORDER.storage, "c", NOON, NOON, "s3a://backups/kafka/x", 1, 2, 3))


@pytest.fixture
def store(kube_client: kube.ApiClient, resources: Resources) -> OrderStore:
    resources.config_map("p", **encode_document(Document(ORDER, Asked(1, NOON))))
    return OrderStore(f"configmap://{resources.namespace}/p", api_client=kube_client)


def stored(resources: Resources) -> Document:
    return decode_document(resources.core.read_namespaced_config_map("p", resources.namespace).data)


def change(resources: Resources, **data: str | None) -> None:
    resources.core.patch_namespaced_config_map("p", resources.namespace, {"data": data})


def test_a_result_is_stored_once_beside_its_order(store: OrderStore, resources: Resources) -> None:
    assert store.order(digest(ORDER)) == ORDER
    store.finish(digest(ORDER), MADE)
    assert stored(resources) == Document(ORDER, Asked(1, NOON), MADE)
    for call in (lambda: store.order(digest(ORDER)), lambda: store.finish(digest(ORDER), replace(MADE, failure="x"))):
        with pytest.raises(StaleAttempt, match="already has the result of this order"):
            call()


def test_who_is_faster_in_between_is_seen(
    store: OrderStore, resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator writes the next order after the job has read its own, and before it writes."""
    following = replace(ORDER, attempt="p-backup-2")
    read: Callable[..., Any] = store._core.read

    def read_late(*arguments: Any, **options: Any) -> Any:
        found = read(*arguments, **options)
        if stored(resources).order == ORDER:
            change(resources, **encode_document(Document(following, Asked(2, NOON))))
        return found

    monkeypatch.setattr(store._core, "read", read_late)
    with pytest.raises(StaleAttempt, match="another order"):
        store.finish(digest(ORDER), MADE)
    assert stored(resources) == Document(following, Asked(2, NOON))


def test_nothing_but_the_order_of_the_launch_is_obeyed(store: OrderStore, resources: Resources) -> None:
    forged = replace(ORDER, connection=Connection("evil:9092"))
    change(resources, **encode_document(Document(forged, Asked(1, NOON))))
    with pytest.raises(StaleAttempt, match="another order than this job was started with"):
        store.order(digest(ORDER))
    change(resources, **{"order.json": "{}"})
    with pytest.raises(OrderFailure, match="is not a backup's document"):
        store.order(digest(ORDER))
    resources.core.delete_namespaced_config_map("p", resources.namespace)
    with pytest.raises(RunNotFound, match="there is no ConfigMap"):
        store.order(digest(ORDER))
