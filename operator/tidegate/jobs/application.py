"""The SparkApplication of a launch: the template with its placeholders filled in. Pure.

Follows the Kubeflow Spark operator's ``sparkoperator.k8s.io/v1beta2`` (``api/v1beta2/sparkapplication_types.go``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import yaml

from tidegate.jobs.errors import BadSparkSpec
from tidegate.jobs.mounts import CLAIMS_FOLDER, SECRETS_FOLDER
from tidegate.jobs.options import TASKS_A_CORE, common_options
from tidegate.jobs.runner import Launch, merged_secrets
from tidegate.jobs.settings import IMAGE_FOLDER, SparkSettings
from tidegate.kube.labels import label_value, owner_label
from tidegate.resources.spark_conf import FIXED, refusals

GROUP: Final = "sparkoperator.k8s.io"
VERSION: Final = "v1beta2"
PLURAL: Final = "sparkapplications"

WRITABLE: Final = {"temporary": "/tmp", "work": "/opt/spark/work-dir"}  # noqa: S108 - a folder of the pod's own
"""Volumes by name, and where: a job's root file system is read-only, and Spark adds only its ``spark.local.dir``."""

STORE_VARIABLE: Final = "TIDEGATE_STORE"
ORDER_VARIABLE: Final = "TIDEGATE_BACKUP_ORDER"
MIRROR_ORDER_VARIABLE: Final = "TIDEGATE_MIRROR_ORDER"
"""The digest of the order that a mirror's job obeys, and no other."""


_KUBERNETES: Final = {
    "spark.kubernetes.driver.pod.excludedFeatureSteps": "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"
}
"""Spark 4.2 makes a NetworkPolicy for an application's executors, to which the Spark operator's chart (2.5.1) has no
right: no driver would start. Who grants that right gets them back by an empty value in the chart's ``spark.conf``."""

# --- spec.spark -------------------------------------------------------------------------------------------------------


def resources(
    spark: Mapping[str, Any], settings: SparkSettings, own: Mapping[str, str], *, tasks_a_core: int = 1
) -> dict[str, Any]:
    """The knobs by placeholder name: ``spec.spark`` over the settings over our ``own`` Spark options.

    ``tasks_a_core``: how many tasks an executor does at a time for each core that its pod asks for. Raises
    ``BadSparkSpec``.
    """
    _only_known(spark, "spec.spark", ("image", "driver", "executor", "sparkConf"))
    driver, executor = _section(spark, "driver"), _section(spark, "executor")
    _only_known(driver, "spec.spark.driver", ("cores", "memory"))
    _only_known(executor, "spec.spark.executor", ("instances", "cores", "memory"))
    conf = _section(spark, "sparkConf")
    if refused := refusals(conf, settings.allowed_conf):
        raise BadSparkSpec("spec.spark.sparkConf: " + "; ".join(refused))
    image = spark.get("image") or settings.image
    if image != settings.image and not is_allowed_image(image, settings.allowed_images):
        raise BadSparkSpec(
            f"spec.spark.image: {image} is not allowed: remove it, or have it added to the chart's spark.allowedImages"
        )
    cores = _count(executor, "executor.cores", settings.executor_cores)
    # To Spark a core is a task's place; what the pod asks for is said beside it.
    asked = {"spark.kubernetes.executor.request.cores": str(cores)} if tasks_a_core > 1 else {}
    return {
        "image": image,
        "driver.cores": _count(driver, "driver.cores", settings.driver_cores),
        "driver.memory": _memory(driver, "driver.memory", settings.driver_memory),
        "executor.instances": _count(executor, "executor.instances", settings.executor_instances),
        "executor.cores": cores * tasks_a_core,
        "executor.memory": _memory(executor, "executor.memory", settings.executor_memory),
        "sparkConf": {**own, **_KUBERNETES, **asked, **settings.spark_conf, **conf, **{k: own[k] for k in FIXED}},
    }


def is_allowed_image(image: str, allowed: Iterable[str]) -> bool:
    """Whether ``allowed`` has it, as it is written or by a path that ends in ``/*``."""
    return any(image.startswith(each[:-1]) if each.endswith("/*") else image == each for each in allowed)


def _section(spark: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = spark.get(name) or {}
    if not isinstance(section, Mapping):
        raise BadSparkSpec(f"spec.spark.{name} has to be an object")
    return section


def _only_known(section: Mapping[str, Any], path: str, known: tuple[str, ...]) -> None:
    for key in section:
        if key not in known:
            raise BadSparkSpec(f"{path}.{key} is not known: use {', '.join(known)}")


def _count(section: Mapping[str, Any], path: str, default: int) -> int:
    value = section.get(path.rpartition(".")[2], default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadSparkSpec(f"spec.spark.{path} is {value!r}: it has to be a whole number above 0")
    return value


def _memory(section: Mapping[str, Any], path: str, default: str) -> str:
    value = section.get("memory", default)
    if not isinstance(value, str) or not re.fullmatch(r"[1-9]\d*[kmgtKMGT]", value):
        raise BadSparkSpec(f"spec.spark.{path} is {value!r}: give it as Spark does, for example 512m or 2g")
    return value


# --- rendering --------------------------------------------------------------------------------------------------------

_PLACEHOLDER: Final = re.compile(r"\$\(([A-Za-z.]+)\)")


class BadTemplate(ValueError):
    """The template is not one; the message says where."""


def fill_in(template: Any, values: Mapping[str, Any]) -> Any:
    """Replace each value that is exactly ``$(name)``. A ``None`` takes its key with it. Raises ``BadTemplate``."""
    match template:
        case dict():
            filled = {key: fill_in(value, values) for key, value in template.items()}
            return {key: value for key, value in filled.items() if value is not None}
        case list():
            return [value for value in (fill_in(value, values) for value in template) if value is not None]
        case str() if found := _PLACEHOLDER.fullmatch(template):
            if found[1] not in values:
                raise BadTemplate(f"$({found[1]}) is no placeholder: there are {', '.join(sorted(values))}")
            return values[found[1]]
        case str() if _PLACEHOLDER.search(template):
            raise BadTemplate(f"{template!r}: a placeholder has to be the whole value")
        case _:
            return template


def render(template: str, launch: Launch, settings: SparkSettings) -> dict[str, Any]:
    """The SparkApplication to apply for ``launch``. Raises ``BadTemplate``, ``BadSparkSpec``."""
    parsed = yaml.safe_load(template)
    if not isinstance(parsed, dict) or parsed.get("kind") != "SparkApplication":
        raise BadTemplate("the template is not a SparkApplication")
    of_driver = merged_secrets([launch.connection_secrets, launch.driver_secrets])
    values = resources(
        launch.spark,
        settings,
        common_options(reads_records=launch.reads_records, repeatable=launch.repeatable),
        tasks_a_core=TASKS_A_CORE if launch.reads_records else 1,
    ) | {
        "name": launch.name,
        "namespace": launch.namespace,
        "labels": {
            "app.kubernetes.io/managed-by": "tidegate",
            "app.kubernetes.io/name": f"tidegate-{launch.job}",
            "tidegate.io/launch": label_value(launch.name),
            **owner_label(launch.owner),
        },
        "ownerReferences": [dict(launch.owner)] if launch.owner else None,
        "imagePullPolicy": settings.image_pull_policy,
        "serviceAccount": settings.service_account,
        "executorServiceAccount": settings.executor_service_account or settings.service_account,
        "mainApplicationFile": f"local://{IMAGE_FOLDER}/jobs/{launch.job}.py",
        "arguments": [launch.store],
        "env": [
            {"name": STORE_VARIABLE, "value": launch.store},
            *({"name": name, "value": value} for name, value in sorted(launch.environment.items())),
        ],
        "timeToLiveSeconds": int(settings.time_to_live.total_seconds()),
        "volumes": _volumes(launch, of_driver),
        "volumeMounts": _volume_mounts(launch, of_driver),
        "executor.volumes": _volumes(launch, launch.connection_secrets),
        "executor.volumeMounts": _volume_mounts(launch, launch.connection_secrets),
    }
    application: dict[str, Any] = fill_in(parsed, values)
    return application


def _volumes(launch: Launch, secrets: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    """These Secrets, its PersistentVolumeClaims, and what it may write to."""
    return [
        *(
            {
                "name": f"connection-{n}",
                "secret": {
                    "secretName": secret,
                    "defaultMode": 0o440,
                    "items": [{"key": key, "path": key} for key in sorted(set(keys))],
                },
            }
            for n, (secret, keys) in enumerate(sorted(secrets.items()))
        ),
        *(
            {"name": f"claim-{n}", "persistentVolumeClaim": {"claimName": claim, "readOnly": not written}}
            for n, (claim, written) in enumerate(sorted(launch.claims.items()))
        ),
        *({"name": name, "emptyDir": {}} for name in WRITABLE),
    ]


def _volume_mounts(launch: Launch, secrets: Collection[str]) -> list[dict[str, Any]]:
    """Where those volumes are in its containers, by the same names."""
    return [
        *(
            {"name": f"connection-{n}", "mountPath": str(SECRETS_FOLDER / secret), "readOnly": True}
            for n, secret in enumerate(sorted(secrets))
        ),
        *(
            {"name": f"claim-{n}", "mountPath": str(CLAIMS_FOLDER / claim), "readOnly": not written}
            for n, (claim, written) in enumerate(sorted(launch.claims.items()))
        ),
        *({"name": name, "mountPath": folder} for name, folder in WRITABLE.items()),
    ]
