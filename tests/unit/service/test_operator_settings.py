"""The environment, checked."""

from pathlib import Path

import pytest

from tidegate.jobs.settings import RunnerKind
from tidegate.service.settings import Address, BadSettings, MetricsAuthentication, Settings


def test_an_empty_environment_serves_the_cluster_and_listens_on_the_loopback_interface() -> None:
    settings = Settings.from_environment({})

    assert settings.namespaces == ()
    assert settings.health_address == Address("127.0.0.1", 8080)
    assert settings.spark.runner is RunnerKind.NONE


def test_variables_are_taken_over() -> None:
    settings = Settings.from_environment(
        {
            "TIDEGATE_NAMESPACES": "a, b",
            "TIDEGATE_HEALTH_ADDRESS": "[::1]:0",
            "TIDEGATE_ACTIVE_TICK_S": "0.5",
            "TIDEGATE_RUNTIME_DIRECTORY": "/run/tidegate",
            "TIDEGATE_SPARK_RUNNER": "local",
            "HOME": "/root",
        }
    )

    assert settings.namespaces == ("a", "b")
    assert settings.health_address == Address("::1", 0)
    assert str(settings.health_address) == "[::1]:0"
    assert settings.active_tick_s == 0.5
    assert settings.runtime_directory == Path("/run/tidegate")
    assert settings.spark.runner is RunnerKind.LOCAL


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIDEGATE_HEALTH_ADDRESS", "localhost:8080"),
        ("TIDEGATE_HEALTH_ADDRESS", "127.0.0.1"),
        ("TIDEGATE_HEALTH_ADDRESS", "127.0.0.1:99999"),
        ("TIDEGATE_METRICS_AUTHENTICATION", "password"),
        ("TIDEGATE_METRICS_CERTIFICATES", "/certificates-of-no-address"),
        ("TIDEGATE_NAMESPACES", "Not_A_Namespace"),
        ("TIDEGATE_IDLE_TICK_S", "0"),
        ("TIDEGATE_IDLE_TICK_S", "soon"),
        ("TIDEGATE_MAX_LAUNCHES", "0"),
        ("TIDEGATE_SHARDS", "0"),
        ("TIDEGATE_SHARD", "1"),
        ("TIDEGATE_LOG_LEVEL", "LOUD"),
        ("TIDEGATE_SPARK_RUNNER", "yarn"),
        ("TIDEGATE_QUOTA", "two"),
        ("TIDEGATE_QUOTA", '{"concurrentResets": 0}'),
        ("TIDEGATE_QUOTA", '{"resets": 2}'),
    ],
)
def test_what_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(BadSettings, match=name):
        Settings.from_environment({name: value})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "none"),
        ({"TIDEGATE_METRICS_ADDRESS": "[::]:8443", "TIDEGATE_METRICS_CERTIFICATES": "/tls"}, "kubernetes"),
        ({"TIDEGATE_METRICS_ADDRESS": "127.0.0.1:8443", "TIDEGATE_HEALTH_ADDRESS": "0.0.0.0:8080"}, "none"),
        ({"TIDEGATE_METRICS_ADDRESS": "0.0.0.0:8443", "TIDEGATE_METRICS_AUTHENTICATION": "none"}, "none"),
        ({"TIDEGATE_METRICS_AUTHENTICATION": "kubernetes"}, "kubernetes"),
    ],
)
def test_metrics_are_open_to_the_network_only_where_that_was_said(environment: dict[str, str], expected: str) -> None:
    assert Settings.from_environment(environment).metrics_access is MetricsAuthentication(expected)


def test_a_lease_needs_a_namespace_and_times_by_which_a_leader_gives_up_before_it_ends() -> None:
    lease = {"TIDEGATE_LEASE": "tidegate", "TIDEGATE_NAMESPACE": "ops"}
    election = Settings.from_environment(lease).election
    assert (election.lease_s, election.renew_s, election.retry_s) == (10, 7.0, 2.0)

    with pytest.raises(BadSettings, match=r"TIDEGATE_LEASE is .tidegate.*set TIDEGATE_NAMESPACE"):
        Settings.from_environment({"TIDEGATE_LEASE": "tidegate"})
    for short in ({"TIDEGATE_LEASE_DURATION_S": "7"}, {"TIDEGATE_LEASE_RENEW_S": "2"}, {"TIDEGATE_LEASE_RETRY_S": "7"}):
        with pytest.raises(BadSettings, match=r"LEASE_RETRY_S < LEASE_RENEW_S < LEASE_DURATION_S"):
            Settings.from_environment({**lease, **short})


@pytest.mark.parametrize(("interval", "limit"), [("91", ""), ("90", ""), ("", "30"), ("600", "90")])
def test_the_health_check_does_not_fail_between_two_listings(interval: str, limit: str) -> None:
    """It would by an interval as long as the limit or longer, and a kubelet would restart what is well."""
    with pytest.raises(BadSettings) as refused:
        Settings.from_environment({"TIDEGATE_HEALTH_INTERVAL_S": interval, "TIDEGATE_UNOBSERVED_LIMIT_S": limit})

    assert "TIDEGATE_HEALTH_INTERVAL_S" in str(refused.value)
    assert "TIDEGATE_UNOBSERVED_LIMIT_S" in str(refused.value)


def test_an_interval_that_cannot_be_used_is_all_that_is_named() -> None:
    with pytest.raises(BadSettings) as refused:
        Settings.from_environment({"TIDEGATE_HEALTH_INTERVAL_S": "seldom"})

    assert "TIDEGATE_UNOBSERVED_LIMIT_S" not in str(refused.value)


def test_the_limit_may_be_longer_than_the_interval_or_both_shorter() -> None:
    given = {"TIDEGATE_HEALTH_INTERVAL_S": "2", "TIDEGATE_UNOBSERVED_LIMIT_S": "5"}

    settings = Settings.from_environment(given)

    assert (settings.health_interval_s, settings.unobserved_limit_s) == (2, 5)
