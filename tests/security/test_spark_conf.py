"""Spark settings by which a policy would run code, read files or change who its job is: none gets through.

The operator is asked by what it makes of a policy, the API server by a dry run. Names are Spark 4.2's, of its own
configuration classes and documentation, and the ways in that its releases before had.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes import client

from tidegate.jobs.application import render
from tidegate.jobs.errors import BadSparkSpec
from tidegate.jobs.runner import Launch
from tidegate.jobs.settings import SparkSettings
from tidegate.resources import spark_conf
from tidegate.resources.base import parse_spec
from tidegate.resources.policy import OffsetResetPolicySpec

CODE = (
    # Python that the driver's or the executors' workers are started with
    "spark.python.daemon.module",
    "spark.python.worker.module",
    "spark.python.use.daemon",
    "spark.python.sql.dataFrameDebugging.enabled",
    "spark.pyspark.python",
    "spark.pyspark.driver.python",
    "spark.sql.execution.python.udf.profiler.class",
    "spark.r.command",
    # classes by name
    "spark.plugins",
    "spark.plugins.defaultList",
    "spark.extraListeners",
    "spark.serializer",
    "spark.closure.serializer",
    "spark.kryo.registrator",
    "spark.kryo.classesToRegister",
    "spark.io.compression.codec",
    "spark.shuffle.manager",
    "spark.shuffle.sort.io.plugin.class",
    "spark.sql.extensions",
    "spark.sql.catalogImplementation",
    "spark.sql.catalog.mine",
    "spark.sql.catalog.spark_catalog",
    "spark.sql.queryExecutionListeners",
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.sources.commitProtocolClass",
    "spark.sql.parquet.output.committer.class",
    "spark.sql.cache.serializer",
    "spark.sql.hive.metastore.jars",
    "spark.sql.hive.metastore.jars.path",
    "spark.sql.hive.metastore.sharedPrefixes",
    "spark.sql.warehouse.dir",
    "spark.security.credentials.mine.enabled",
    "spark.security.credentials.hive.enabled",
    "spark.metrics.conf",
    "spark.metrics.conf.*.sink.mine.class",
    "spark.resources.discoveryPlugin",
    "spark.logConf",
    "spark.unsafe.sorter.spill.reader.buffer.size",
    "spark.kubernetes.allocation.pods.allocator",
    "spark.kubernetes.driver.pod.featureSteps",
    "spark.kubernetes.executor.pod.featureSteps",
    "spark.kubernetes.driver.pod.excludedFeatureSteps",
    "spark.kubernetes.executor.rollPolicy",
    "spark.hadoop.fs.file.impl",
    "spark.hadoop.hadoop.security.group.mapping",
    "spark.hadoop.javax.jdo.option.ConnectionURL",
    # classes, jars, archives, files
    "spark.repl.class.uri",
    "spark.repl.class.outputDir",
    "spark.repl.local.jars",
    "spark.jars",
    "spark.jars.packages",
    "spark.jars.repositories",
    "spark.jars.ivy",
    "spark.jars.ivySettings",
    "spark.files",
    "spark.archives",
    "spark.submit.pyFiles",
    "spark.submit.deployMode",
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    "spark.driver.extraJavaOptions",
    "spark.driver.defaultJavaOptions",
    "spark.driver.userClassPathFirst",
    "spark.executor.extraClassPath",
    "spark.executor.extraLibraryPath",
    "spark.executor.extraJavaOptions",
    "spark.executor.defaultJavaOptions",
    "spark.executor.userClassPathFirst",
    "spark.connect.extensions.relation.classes",
    "spark.local.dir",
    # scripts
    "spark.driver.resource.gpu.discoveryScript",
    "spark.executor.resource.gpu.discoveryScript",
    "spark.worker.resource.gpu.discoveryScript",
    "spark.driver.resource.gpu.amount",
)
WHO = (
    "spark.master",
    "spark.app.name",
    "spark.app.id",
    "spark.driver.host",
    "spark.driver.bindAddress",
    "spark.driverEnv.TIDEGATE_STORE",
    "spark.executorEnv.PYTHONPATH",
    "spark.executorEnv.LD_PRELOAD",
    "spark.kubernetes.namespace",
    "spark.kubernetes.driver.master",
    "spark.kubernetes.context",
    "spark.kubernetes.authenticate.driver.serviceAccountName",
    "spark.kubernetes.authenticate.executor.serviceAccountName",
    "spark.kubernetes.authenticate.submission.oauthTokenFile",
    "spark.kubernetes.authenticate.driver.mounted.caCertFile",
    "spark.kubernetes.container.image",
    "spark.kubernetes.driver.container.image",
    "spark.kubernetes.executor.container.image",
    "spark.kubernetes.container.image.pullSecrets",
    "spark.kubernetes.driver.podTemplateFile",
    "spark.kubernetes.executor.podTemplateFile",
    "spark.kubernetes.driver.pod.name",
    "spark.kubernetes.driver.secrets.other",
    "spark.kubernetes.executor.secrets.other",
    "spark.kubernetes.driver.secretKeyRef.PASSWORD",
    "spark.kubernetes.executor.secretKeyRef.PASSWORD",
    "spark.kubernetes.driver.volumes.hostPath.root.mount.path",
    "spark.kubernetes.executor.volumes.hostPath.root.options.path",
    "spark.kubernetes.driver.label.app",
    "spark.kubernetes.driver.annotation.sidecar",
    "spark.kubernetes.kerberos.krb5.path",
    "spark.kubernetes.hadoop.configMapName",
    "spark.kubernetes.file.upload.path",
    "spark.kubernetes.trust.certificates",
    "spark.kerberos.keytab",
    "spark.yarn.dist.files",
    "spark.authenticate",
    "spark.authenticate.secret.file",
    "spark.network.crypto.enabled",
    "spark.io.encryption.enabled",
    "spark.ssl.keyStore",
    "spark.acls.enable",
    "spark.admin.acls",
    "spark.redaction.regex",
    "spark.ui.enabled",
    "spark.ui.filters",
    "spark.ui.proxyBase",
    "spark.eventLog.dir",
    "spark.kafka.clusters.a.auth.bootstrap.servers",
    "spark.kafka.clusters.a.sasl.token.mechanism",
)
PROMISES = (
    # what Tidegate promises would no longer hold
    "spark.speculation",
    "spark.task.maxFailures",
    "spark.stage.maxConsecutiveAttempts",
    "spark.dynamicAllocation.enabled",
    "spark.executor.instances",
    "spark.executor.cores",
    "spark.executor.memory",
    "spark.driver.cores",
    "spark.driver.memory",
    "spark.sql.variable.substitute",
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
)
DISGUISED = (
    # a harmless name with something about it
    "spark.sql.shuffle.partitions ",
    " spark.sql.shuffle.partitions",
    "Spark.sql.shuffle.partitions",
    "spark.sql.shuffle.partitions\nspark.plugins",
    "spark.sql.shuffle.partitions=1 --conf spark.plugins",
    "spark.kubernetes.node.selector",
    "spark.kubernetes.node.selector.",
    "spark.kubernetes.node.selector.a=b",
    "spark.kubernetes.node.selector.a b",
    "spark.kubernetes.node.selector.a/b/c",
    "spark.kubernetes.node.selector.a\nspark.plugins",
    "spark.kubernetes.node.selector.${env:HOME}",
    "xspark.kubernetes.node.selector.a",
    "spark.kubernetes.other.node.selector.a",
    "",
)
REFUSED = (*CODE, *WHO, *PROMISES, *DISGUISED)

HOSTILE_VALUES = (
    "${env:HOME}",
    "${system:user.home}",
    "${spark.app.name}",
    "1\nspark.plugins=evil.Plugin",
    "1\r",
    "1\x00",
    "1 --conf spark.plugins=evil.Plugin",
    "1;",
    "$(cat /etc/passwd)",
    "../../etc",
    "evil.Plugin",
    "http://evil/x.jar",
    "\u0661",
    " 1",
    "1 ",
    "",
    "9" * 257,
)


def made(conf: dict[str, str]) -> dict[str, Any]:
    """The SparkApplication that the operator makes for a policy. Raises ``BadSparkSpec``, ``InvalidResource``."""
    policy = {"spec": {"connectionRef": {"name": "kafka"}, "group": "payments", "spark": {"sparkConf": conf}}}
    spec = parse_spec(OffsetResetPolicySpec, policy)
    assert spec.spark is not None
    template = (SparkSettings().templates / "sparkapplication.yaml").read_text()
    return render(template, Launch("a", "b", "configmap://b/a", spark=spec.spark.to_json()), SparkSettings())


def test_the_operator_makes_no_job_with_a_setting_that_names_code_or_who_it_is() -> None:
    accepted = []
    for name in REFUSED:
        try:
            made({name: "1"})
        except BadSparkSpec:
            continue
        accepted.append(name)
    assert accepted == []


@pytest.mark.parametrize("setting", spark_conf.ALLOWED, ids=lambda setting: setting.name)
def test_the_operator_takes_no_value_of_another_form(setting: spark_conf.Setting) -> None:
    # Some are labels and the like of their own right: "evil.Plugin" is the name of no scheduler, and does no harm.
    harmless = {"evil.Plugin"} if setting.form is spark_conf.NAME else set()
    for value in HOSTILE_VALUES:
        if value not in harmless:
            with pytest.raises(ValueError, match=setting.name.replace(".", "[.]") + "|must be at most 256"):
                made({setting.name: value})


def test_what_the_administrator_has_allowed_is_still_bounded() -> None:
    for value in ("${env:HOME}", "a\nb", "a\x00", "é", "x" * 257):
        assert spark_conf.refusals({"spark.shuffle.compress": value}, {"spark.shuffle.compress"})
    assert spark_conf.refusals({"spark.speculation": "true"}, {"spark.speculation"})


@pytest.mark.usefixtures("crds_installed")
def test_the_api_server_refuses_what_the_operator_refuses(kube_client: Any, namespace: str) -> None:
    api = client.CustomObjectsApi(kube_client)

    def complaint(conf: dict[str, str]) -> str:
        """What the API server says of a policy; nothing where it would take it."""
        policy = {
            "apiVersion": "tidegate.io/v1alpha1",
            "kind": "OffsetResetPolicy",
            "metadata": {"name": "hostile"},
            "spec": {"connectionRef": {"name": "kafka"}, "group": "payments", "spark": {"sparkConf": conf}},
        }
        where = ("tidegate.io", "v1alpha1", namespace, "offsetresetpolicies")
        try:
            api.create_namespaced_custom_object(*where, policy, dry_run="All", field_validation="Strict")
        except client.ApiException as error:
            return str(json.loads(error.body)["message"])
        return ""

    assert [name for name in REFUSED if "only the settings of Spark" not in complaint({name: "1"})] == []
    one_each = {setting.form: setting.name for setting in spark_conf.ALLOWED}
    taken = [(name, value) for name in one_each.values() for value in HOSTILE_VALUES if not complaint({name: value})]
    assert taken == [(one_each[spark_conf.NAME], "evil.Plugin")]  # the name of no scheduler, which does no harm
