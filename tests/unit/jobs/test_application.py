"""The SparkApplication that a launch becomes, held against golden files.

``TIDEGATE_UPDATE_GOLDEN=1`` writes them anew; read the difference before committing it.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidegate.jobs.application import BadTemplate, fill_in, render
from tidegate.jobs.errors import BadSparkSpec
from tidegate.jobs.mounts import secret_file
from tidegate.jobs.options import local_options, with_archive
from tidegate.jobs.runner import Launch
from tidegate.jobs.settings import RunnerKind, SparkSettings
from tidegate.kube.ports import BACKUPS, MIRRORS, RESETS, Kind
from tidegate.resources import spark_conf

GOLDEN = Path(__file__).parent / "golden"
TEMPLATE = (SparkSettings().templates / "sparkapplication.yaml").read_text()
OWNER = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "OffsetResetPolicy",
    "name": "payments",
    "uid": "5c3e6f0e-8f0e-4d9c-9b61-0d7d1c1f4c11",
    "controller": True,
    "blockOwnerDeletion": True,
}

ALLOWED_IMAGES = ("registry.example/*", "$(serviceAccount)\nmode: client")

LAUNCHES = {
    "bare": Launch("payments-replay-1", "prod", "configmap://prod/payments-replay"),
    "all-knobs": Launch(
        "payments-replay-2",
        "prod",
        "configmap://prod/payments-replay",
        owner=OWNER,
        spark={
            "image": "registry.example/tidegate-spark:1.2",
            "driver": {"cores": 2, "memory": "2g"},
            "executor": {"instances": 4, "cores": 3, "memory": "1500m"},
            "sparkConf": {"spark.sql.shuffle.partitions": "16", "spark.kubernetes.node.selector.pool": "batch"},
        },
        connection_secrets={"kafka-user": ("password",), "kafka-ca": ("ca.crt", "ca.crt", "extra.crt")},
    ),
    "mirror": Launch(
        "to-new-mirror-0a1b2c3d-4",
        "prod",
        "offsetmirror://prod/to-new",
        owner=OWNER | {"kind": "OffsetMirror", "name": "to-new"},
        spark={"executor": {"instances": 3}},
        connection_secrets={"kafka-new": ("password",), "kafka-old": ("password",)},
        job="mirror",
        environment={"TIDEGATE_MIRROR_ORDER": "6c9d"},
        repeatable=True,
    ),
    "backup": Launch(
        "backup-backup-0a1b2c3d-1",
        "prod",
        "configmap://prod/backup-backup-0a1b2c3d",
        connection_secrets={"s3-backups": ("credentials",)},
        claims={"backups": False, "archive": True},
        job="backup",
        environment={"AWS_SHARED_CREDENTIALS_FILE": "/etc/tidegate/secrets/s3-backups/credentials"},
    ),
    "search": Launch("payments-replay-4", "prod", "configmap://prod/payments-replay", reads_records=True),
    # Nothing that a resource contains is ever text of the template.
    "hostile": Launch(
        "payments-replay-3",
        "prod",
        "configmap://prod/x\nspec: {type: Java}",
        spark={"image": "$(serviceAccount)\nmode: client"},
    ),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_rendering_is_as_it_was(name: str) -> None:
    settings = SparkSettings(
        image="tidegate-spark:0.1",
        time_to_live=timedelta(minutes=10),
        allowed_images=ALLOWED_IMAGES,
        executor_service_account="tidegate-spark-executor",
    )
    rendered = render(TEMPLATE, LAUNCHES[name], settings)
    golden = GOLDEN / f"{name}.yaml"
    if os.environ.get("TIDEGATE_UPDATE_GOLDEN"):
        golden.write_text(yaml.safe_dump(rendered, sort_keys=False))
    assert rendered == yaml.safe_load(golden.read_text())


@pytest.mark.parametrize(
    ("kind", "label"),
    [(RESETS, "offset-reset"), (BACKUPS, "offset-backup"), (MIRRORS, "offset-mirror")],
    ids=lambda given: given if isinstance(given, str) else given.kind,
)
def test_an_application_says_whose_it_is(kind: Kind, label: str) -> None:
    owner = OWNER | {"kind": kind.kind, "name": "payments"}
    rendered = render(TEMPLATE, Launch("payments-1", "prod", "configmap://prod/payments", owner=owner), SparkSettings())
    assert rendered["metadata"]["labels"][f"tidegate.io/{label}"] == "payments"


@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        ("tidegate-spark:0.1", True),
        ("registry.example/team/spark:1", True),
        ("registry.example/team/deep/spark@sha256:0", True),
        ("other.example/spark:2", True),
        ("other.example/spark:3", False),
        ("other.example/spark:2-evil", False),
        ("registry.example.evil/team/spark:1", False),
        ("registry.example/teams/spark:1", False),
        ("evil/registry.example/team/spark:1", False),
        ("tidegate-spark", False),
    ],
)
def test_only_the_charts_image_and_those_that_it_allows_are_run(image: str, *, allowed: bool) -> None:
    told = {"TIDEGATE_SPARK_ALLOWED_IMAGES": "registry.example/team/*,other.example/spark:2"}
    settings = SparkSettings.from_environment({"TIDEGATE_SPARK_IMAGE": "tidegate-spark:0.1", **told})
    launch = Launch("a", "b", "c", spark={"image": image})

    if allowed:
        assert render(TEMPLATE, launch, settings)["spec"]["image"] == image
    else:
        with pytest.raises(BadSparkSpec, match="is not allowed: remove it, or have it added"):
            render(TEMPLATE, launch, settings)


def test_hostile_text_stays_a_value() -> None:
    rendered = render(TEMPLATE, LAUNCHES["hostile"], SparkSettings(allowed_images=ALLOWED_IMAGES))
    assert rendered["spec"]["type"] == "Python"
    assert rendered["spec"]["mode"] == "cluster"
    assert rendered["spec"]["image"] == "$(serviceAccount)\nmode: client"


def test_driver_and_executors_are_confined_and_find_their_secrets() -> None:
    spec = render(TEMPLATE, LAUNCHES["all-knobs"], SparkSettings(allowed_images=ALLOWED_IMAGES))["spec"]
    assert spec["restartPolicy"] == {"type": "Never"}
    for pod in (spec["driver"]["template"]["spec"], spec["executor"]["template"]["spec"]):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert set(mounted) == {volume["name"] for volume in pod["volumes"]}
        secrets = [volume for volume in pod["volumes"] if "secret" in volume]
        assert len(secrets) == len(LAUNCHES["all-knobs"].connection_secrets)
        for volume in secrets:
            for item in volume["secret"]["items"]:
                expected = secret_file(volume["secret"]["secretName"], item["key"])
                assert Path(mounted[volume["name"]]) / item["path"] == expected


def test_executors_get_none_of_the_drivers_own_secrets() -> None:
    """Also where a Secret has keys for both."""
    launch = Launch(
        "a",
        "b",
        "c",
        connection_secrets={"all": ("kafka.key",), "kafka": ("password",)},
        driver_secrets={"all": ("registry.crt",), "registry": ("password",)},
    )
    spec = render(TEMPLATE, launch, SparkSettings())["spec"]
    found = {}
    for part in ("driver", "executor"):
        pod = spec[part]["template"]["spec"]
        mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
        assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}
        found[part] = {
            (mounts[volume["name"]], item["path"])
            for volume in pod["volumes"]
            for item in volume.get("secret", {}).get("items", ())
        }
    folder = "/etc/tidegate/secrets"
    kafka = {(f"{folder}/all", "kafka.key"), (f"{folder}/kafka", "password")}
    registry = {(f"{folder}/all", "registry.crt"), (f"{folder}/registry", "password")}
    assert found == {"driver": kafka | registry, "executor": kafka}


def test_what_a_policy_may_not_set_is_named_with_what_to_do() -> None:
    conf = {
        "spark.executor.memory": "1g",
        "spark.speculation": "true",
        "spark.sql.shuffle.partitions": 4,
        "spark.network.timeout": "soon",
        "hive.metastore.uris": "x",
    }
    with pytest.raises(BadSparkSpec) as refused:
        render(TEMPLATE, Launch("a", "b", "c", spark={"sparkConf": conf}), SparkSettings())
    said = str(refused.value)
    assert said.startswith("spec.spark.sparkConf: ")
    assert "spark.executor.memory can't be set: use spec.spark.executor.memory;" in said
    assert "spark.speculation can't be set" in said
    assert "spark.sql.shuffle.partitions must be a string: put 4 in quotes" in said
    assert "spark.network.timeout is 'soon': it must be a whole number with its unit, such as 120s" in said
    assert "hive.metastore.uris can't be set" in said


@pytest.mark.parametrize("setting", spark_conf.ALLOWED, ids=lambda setting: setting.name)
def test_what_a_policy_may_set(setting: spark_conf.Setting) -> None:
    value = VALUES[setting.form]
    rendered = render(TEMPLATE, Launch("a", "b", "c", spark={"sparkConf": {setting.name: value}}), SparkSettings())
    assert rendered["spec"]["sparkConf"][setting.name] == value


VALUES = {
    spark_conf.SIZE: "2g",
    spark_conf.COUNT: "16",
    spark_conf.FRACTION: "0.4",
    spark_conf.DURATION: "60s",
    spark_conf.SWITCH: "true",
    spark_conf.CPU: "500m",
    spark_conf.LEVEL: "INFO",
    spark_conf.NAME: "default-scheduler",
}


def test_what_the_administrator_allows_is_given_and_nothing_else_by_it() -> None:
    settings = SparkSettings.from_environment({"TIDEGATE_SPARK_ALLOWED_CONF": "spark.shuffle.compress, spark.x.y"})

    def given(**conf: str) -> dict[str, Any]:
        spark = {"sparkConf": {name.replace("_", "."): value for name, value in conf.items()}}
        rendered: dict[str, Any] = render(TEMPLATE, Launch("a", "b", "c", spark=spark), settings)
        return rendered

    assert given(spark_shuffle_compress="false")["spec"]["sparkConf"]["spark.shuffle.compress"] == "false"
    for refused in ({"spark_shuffle_compress": "${env:HOME}"}, {"spark_x_y_z": "1"}, {"spark_x": "1"}):
        with pytest.raises(BadSparkSpec):
            given(**refused)


@pytest.mark.parametrize(
    ("spark", "part"),
    [
        ({"driver": {"cores": 0}}, "driver.cores is 0"),
        ({"driver": {"cores": True}}, "driver.cores is True"),
        ({"executor": {"instances": "2"}}, "executor.instances is '2'"),
        ({"driver": {"memory": "lots"}}, "512m or 2g"),
        ({"executor": {"cpu": 1}}, "executor.cpu is not known"),
        ({"jars": []}, "spec.spark.jars is not known"),
        ({"driver": 1}, "has to be an object"),
    ],
)
def test_knobs_that_make_no_sense_are_named(spark: dict[str, Any], part: str) -> None:
    with pytest.raises(BadSparkSpec) as refused:
        render(TEMPLATE, Launch("a", "b", "c", spark=spark), SparkSettings())
    assert part in str(refused.value)


@pytest.mark.parametrize(
    ("template", "part"),
    [
        ({"a": "$(nothing)"}, "no placeholder"),
        ({"a": ["x-$(name)"]}, "whole value"),
        ({"a": {"b": "$(name)$(name)"}}, "whole value"),
    ],
)
def test_a_template_with_other_placeholders_is_refused(template: Any, part: str) -> None:
    with pytest.raises(BadTemplate, match=part):
        fill_in(template, {"name": "n"})


def test_absent_values_take_their_keys_along() -> None:
    assert fill_in({"a": "$(none)", "b": ["$(none)", "$(one)"]}, {"none": None, "one": 1}) == {"b": [1]}


def test_a_template_of_something_else_is_refused() -> None:
    with pytest.raises(BadTemplate, match="not a SparkApplication"):
        render("kind: Pod", LAUNCHES["bare"], SparkSettings())


def test_settings_come_from_the_environment() -> None:
    settings = SparkSettings.from_environment(
        {
            "TIDEGATE_SPARK_RUNNER": "sparkapplication",
            "TIDEGATE_SPARK_EXECUTOR_INSTANCES": "3",
            "TIDEGATE_SPARK_CONF": '{"spark.network.timeout": "60s"}',
            "TIDEGATE_SPARK_START_TIMEOUT_S": "90",
        }
    )
    assert settings.runner is RunnerKind.SPARK_APPLICATION
    assert settings.executor_instances == 3
    assert settings.spark_conf == {"spark.network.timeout": "60s"}
    assert settings.start_timeout == timedelta(seconds=90)
    assert settings.driver_memory == SparkSettings().driver_memory


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RUNNER", "yarn"),
        ("DRIVER_CORES", "0"),
        ("DRIVER_CORES", "two"),
        ("CONF", "{"),
        ("CONF", '{"a": 1}'),
        ("ALLOWED_CONF", "spark.a', 'b"),
        ("ALLOWED_CONF", "spark.shuffle.*"),
        ("ALLOWED_CONF", "spark.sql.variable.substitute"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"TIDEGATE_SPARK_{name}"):
        SparkSettings.from_environment({f"TIDEGATE_SPARK_{name}": value})


def test_the_archive_of_classes_is_used_where_there_is_one(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    assert with_archive(local_options(), None) == with_archive(local_options(), archive) == local_options()
    archive.touch()
    options = with_archive(local_options(), archive)["spark.driver.extraJavaOptions"]
    assert options.startswith(local_options()["spark.driver.extraJavaOptions"])
    assert f"-XX:SharedArchiveFile={archive}" in options
