"""The Kubeflow Spark operator on a node: its own chart and program out of its Go module, on our Spark image."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from devstack.errors import StackError
from devstack.images import TAG, build_image
from devstack.node import Node
from devstack.toolcache import (
    DEV,
    Build,
    helm_binary,
    spark_operator_binary,
    spark_operator_module,
    toolcache,
)

NAMESPACE = "spark-operator"
_RELEASE = "spark-operator"
_REPOSITORY = "library/spark-operator"


def spark_operator_image() -> Path:
    """Its image, for `Node.load`; builds the Spark image first, on which it stands."""
    build_image("spark")
    dockerfile, binary = DEV / "spark-operator" / "Dockerfile", spark_operator_binary()

    def build(build: Build) -> None:
        shutil.copyfile(binary, build.folder / "spark-operator")
        shutil.copyfile(spark_operator_module() / "entrypoint.sh", build.folder / "entrypoint.sh")

    context = toolcache().artifact(
        "spark-operator-context", [str(binary)], build, label="Spark operator's image", first_time="a moment"
    )
    return build_image("spark-operator", name=f"docker.io/{_REPOSITORY}:{TAG}", context=context, dockerfile=dockerfile)


def install_spark_operator(node: Node, job_namespaces: Sequence[str], *, timeout: float = 120) -> None:
    """Load the image and install the operator's chart for these namespaces, which must exist; waits until it is ready.

    Its service account for drivers is ``spark-operator-spark``. Raises `StackError` with what Helm says.
    """
    node.load(spark_operator_image())
    values = {
        "image": {"registry": "docker.io", "repository": _REPOSITORY, "tag": TAG, "pullPolicy": "Never"},
        "spark": {"jobNamespaces": list(job_namespaces)},
    }
    chart = spark_operator_module() / "charts" / "spark-operator-chart"
    command = [
        *(str(helm_binary()), "upgrade", "--install", _RELEASE, str(chart), f"--kubeconfig={node.kubeconfig}"),
        *(f"--namespace={NAMESPACE}", "--create-namespace", "--values=-", "--wait", f"--timeout={timeout:.0f}s"),
    ]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StackError(f"helm did not install the Spark operator: {done.stderr.strip()}")
