"""Spark as the job's image has it: what is left out is not there, what jobs need is; and which settings it knows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from support.spark_jars import home_of_the_image
from tidegate.resources import spark_conf

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.hadoop.hive.ql.Driver",
        "org.apache.hive.beeline.BeeLine",
        "org.apache.spark.sql.hive.client.IsolatedClientLoader",
        "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2",
        "org.apache.spark.repl.Main",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "org.apache.spark.deploy.yarn.Client",
        "scala.tools.nsc.Global",
    ],
)
def test_what_is_left_out_cannot_be_loaded(spark: Any, name: str) -> None:
    with pytest.raises(Py4JJavaError, match="ClassNotFoundException"):
        spark._jvm.org.apache.spark.util.Utils.classForName(name, True, True)


def test_jobs_do_what_they_do_without_it(spark: Any, tmp_path: Path) -> None:
    """Searches need Kafka's connector and joins; backups need Parquet; applying needs Python in executors."""
    from pyspark.sql.functions import pandas_udf

    for needed in (
        "org.apache.spark.sql.kafka010.KafkaSourceProvider",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesClusterManager",
        "org.apache.spark.deploy.k8s.submit.KubernetesClientApplication",
    ):
        spark._jvm.org.apache.spark.util.Utils.classForName(needed, True, True)
    rows = spark.createDataFrame([(n, f"payments-{n}") for n in range(100)], "partition int, topic string")
    rows.write.parquet(str(tmp_path / "backup"))
    read = spark.read.parquet(str(tmp_path / "backup"))
    double = pandas_udf(lambda numbers: numbers * 2, "long")
    joined = read.join(rows, "partition").select(double("partition").alias("n")).groupBy().sum("n").first()
    assert joined[0] == 2 * sum(range(100))


def test_an_application_is_submitted_to_kubernetes_without_it(tmp_path: Path) -> None:
    """As far as the API server, which is not there: spark-submit, and Spark's half for Kubernetes, miss no class."""
    done = subprocess.run(
        [
            str(home_of_the_image(tmp_path) / "bin" / "spark-submit"),
            *("--master", "k8s://http://127.0.0.1:9", "--deploy-mode", "cluster", "--name", "a"),
            *(
                "--conf",
                "spark.kubernetes.container.image=a",
                "--conf",
                "spark.kubernetes.submission.connectionTimeout=1000",
            ),
            "local:///opt/tidegate/spark/jobs/reset.py",
        ],
        env={**os.environ, "SPARK_HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable, "KUBECONFIG": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "KubernetesClientException" in done.stderr
    for missing in ("NoClassDefFoundError", "ClassNotFoundException"):
        assert missing not in done.stderr


def test_spark_knows_each_setting_that_a_policy_may_give(spark: Any) -> None:
    """A name that Spark does not know would be taken and do nothing."""
    jvm = spark._jvm
    for holder in (
        "org.apache.spark.internal.config.package$",
        "org.apache.spark.internal.config.Network$",
        "org.apache.spark.internal.config.Python$",
        "org.apache.spark.sql.internal.SQLConf$",
        "org.apache.spark.deploy.k8s.Config$",
        "org.apache.spark.sql.kafka010.package$",
    ):
        jvm.org.apache.spark.util.Utils.classForName(holder, True, True)
    known = jvm.org.apache.spark.internal.config.ConfigEntry
    unknown = [setting.name for setting in spark_conf.ALLOWED if known.findEntry(setting.name) is None]
    assert unknown == []
