"""By which schema a job decodes values, and who is given the schema registry's Secrets: nobody else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.reset_world import World
from tidegate.jobs.runner import Launch
from tidegate.kafka.connection import Registry
from tidegate.reset.model.targets import RecordSchema, ToRecord
from tidegate.resources.reset import Engine
from tidegate.resources.targets import SchemaFormat, Undecodable

HERE = Registry("https://registry:8081", Path("/run/ca/ca.crt"), "me", Path("/run/login/pw"))
MOUNTED = Registry("https://registry:8081", Path("/etc/tidegate/secrets/ca/ca.crt"), "me", None)
SECRETS = {"registry": ("password",), "all": ("registry.crt",)}
SUBJECT = {"registry": {"subject": "orders-value", "version": 3}, "format": "Avro"}


def asked(world: World, schema: dict[str, Any], *, in_pods: bool = True, **connection: Any) -> list[Launch]:
    launches: list[Launch] = []
    world.runner.work = launches.append
    world.engines, world.mounts_secrets = {Engine.SPARK: world.runner}, in_pods
    (live,) = world.live
    world.live.put(replace(live, **connection))
    world.reconciler = world.fresh_reconciler()
    world.ask(to={"record": {"where": "record.status = 500", "valueSchema": schema}})
    world.some_passes(5)
    return launches


def schema_of(world: World, launches: list[Launch]) -> RecordSchema | None:
    (launch,) = launches
    target = world.open_store("ns", launch.store.rpartition("/")[2], None).load().request.target
    assert isinstance(target, ToRecord)
    return target.schema


@pytest.mark.parametrize(("in_pods", "registry"), [(True, MOUNTED), (False, HERE)])
def test_a_job_asks_the_registry_of_its_connection(world: World, in_pods: bool, registry: Registry) -> None:
    launches = asked(world, SUBJECT, in_pods=in_pods, registry=HERE, mounted_registry=MOUNTED, registry_secrets=SECRETS)

    source = "subject orders-value of the schema registry"
    assert schema_of(world, launches) == RecordSchema(
        SchemaFormat.AVRO, "", source, registry=registry, subject="orders-value", version=3
    )
    # Executors get what is in connection_secrets as well.
    assert launches[0].driver_secrets == (SECRETS if in_pods else {})
    assert "registry" not in launches[0].connection_secrets


def test_a_job_that_asks_no_registry_gets_none_of_its_secrets(world: World) -> None:
    world.kube.config_maps["ns", "orders"] = {"v1": "{}"}
    schema = {"configMap": {"name": "orders", "key": "v1"}, "format": "Protobuf", "message": "shop.Order"}
    launches = asked(
        world, {**schema, "undecodable": "Null"}, registry=HERE, mounted_registry=MOUNTED, registry_secrets=SECRETS
    )

    assert schema_of(world, launches) == RecordSchema(
        SchemaFormat.PROTOBUF, "{}", "ConfigMap orders, key v1", "shop.Order", undecodable=Undecodable.NULL
    )
    assert launches[0].driver_secrets == {}
    assert "registry" not in launches[0].connection_secrets
    assert "registry.crt" not in launches[0].connection_secrets.get("all", ())


def test_a_connection_without_a_registry_is_said(world: World) -> None:
    assert asked(world, SUBJECT) == []
    assert world.condition("Stalled")["reason"] == "NoSchemaRegistry"
    assert "add spec.schemaRegistry there" in world.condition("Stalled")["message"]
