"""Every reason that conditions, Events and runs can have is explained to users, and reached by a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tidegate.offset_reset.ends import RUN_ENDS

ROOT = Path(__file__).parents[3]
CODE = ROOT / "operator" / "tidegate"

A_WORD = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]*)*")
WORDS = re.compile(r"(?:[A-Z][a-z]+){2,}")

NO_REASONS = {
    *("Ready", "Reconciling", "Stalled", "Reset", "ReadFromTarget", "Complete", "Failed"),  # types of conditions
    *("Retained", "BackedUp", "ControlTopics", "Effective", "Overridden", "InSync", "Seeding", "Drifted"),
    *("AdmissionReview", "ConfigMap", "DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet"),
    *("SparkApplication", "SubjectAccessReview", "TokenReview"),
    *("ConsumerGroupPause", "KafkaConnection", "OffsetReset", "OffsetResetApproval", "OffsetResetPolicy"),
    "SelfSubjectReview",
    *("ContainerCreating", "PodInitializing", "PodScheduled"),  # what Kubernetes says of others' pods
    *("NamespaceTerminating", "DisruptionBudget"),  # causes of an API server's refusal
    *("FallbackToLogsOnError", "RuntimeDefault", "BearerToken"),
    *(
        "AlterConfigs",
        "IdempotentWrite",
        "CompleteAbort",
        "CompleteCommit",
        "CreateTime",
        "DescribeConfigs",
        "LogAppendTime",
    ),  # Kafka's
    *("AttributeReference", "CallMethodViaReflection", "EqualNullSafe", "EqualTo", "GetJsonObject"),  # Spark's
    *("GetStructField", "PlanExpression", "UserDefinedExpression", "WindowExpression"),
    *("UnresolvedAttribute", "UnresolvedCollation", "UnresolvedExtractValue", "UnresolvedFunction"),
    *("AuthenticationException", "AuthorizationException", "ClassNotFoundException"),  # Java's
    *("DefaultCredentialsProvider", "ProfileCredentialsProvider"),
    *("NotSelected", "TooOld", "InUse"),  # labels of metrics
}


def _sources() -> Iterator[ast.Module]:
    for source in sorted(CODE.rglob("*.py")):
        # What the command line says goes to no resource.
        if not source.is_relative_to(CODE / "cli") and not source.is_relative_to(CODE / "admin"):
            yield ast.parse(source.read_text())


def _reasons() -> dict[str, set[str]]:
    """Constants of one or more capitalised words, and any other text of two or more: no Enum's, and no ``__all__``.

    By reason, the names of its constants.
    """
    found: dict[str, set[str]] = {reason: set() for _, reason in RUN_ENDS}
    for tree in _sources():
        others: set[ast.AST] = set()
        for node in ast.walk(tree):
            is_enum = isinstance(node, ast.ClassDef) and any("Enum" in ast.unparse(base) for base in node.bases)
            is_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            if is_enum or is_all:
                others.update(ast.walk(node))
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant) and node not in others:
                value = node.value.value
                if isinstance(value, str) and A_WORD.fullmatch(value):
                    found.setdefault(value, set()).add(ast.unparse(node.target))
            if isinstance(node, ast.Constant) and node not in others and WORDS.fullmatch(str(node.value)):
                found.setdefault(str(node.value), set())
    return {reason: names for reason, names in found.items() if reason not in NO_REASONS}


REASONS = _reasons()


def test_the_reasons_of_all_parts_are_found() -> None:
    some = {"Connected", "Usable", "Paused", "AckOverdue", "Overwritten", "JobRestarting", "NoTopicOverThere"}
    assert some | {"BadExpression", "BackupLate", "ExpiryUnknown", "BackfillFailed", "PodUnreadable"} <= set(REASONS)


def test_every_reason_is_explained() -> None:
    explained = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))

    assert {reason for reason in REASONS if f"`{reason}`" not in explained} == set()


def test_every_reason_is_named_by_a_test() -> None:
    """By the text that users read, or by its constant, unless that is a word that others use for theirs."""
    here = Path(__file__)
    tests = "\n".join(
        path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py")) if path.resolve() != here.resolve()
    )

    named = set(re.findall(r"\w+", tests))

    unnamed = {reason for reason, names in REASONS.items() if not named & {reason, *(n for n in names if "_" in n)}}
    assert unnamed == set()
