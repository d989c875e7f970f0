"""What a consumer's own configuration says of new partitions: taken out before its client library refuses it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate_agent.start import (
    LATEST_MAX_AGE,
    NEW_PARTITIONS,
    Options,
    Rule,
    RuleError,
    Start,
    parse_max_age,
    parse_new_partitions,
    reset_policy,
    rule_for,
)

log = logging.getLogger("tidegate_agent")


@dataclass(frozen=True)
class OwnOptions:
    """``rest``: the configuration without those of our options that the client library does not know.

    ``is_native``: it knows one that is given, and applies it itself.
    """

    rest: dict[str, Any]
    options: Options
    is_native: bool

    def rule(self, group: str, reset: object, environment: Options) -> Rule | None:
        """The rule for the consumer: its own word wins over the environment's. ``reset``: its auto.offset.reset."""
        if self.is_native:
            return None
        options, policy = self.options.over(environment), reset_policy(reset)
        rule = rule_for(options, policy)
        if options.latest_max_age_ms not in (None, -1) and policy is not Start.LATEST:
            log.info("group %s: %s says nothing here, for auto.offset.reset is %s", group, LATEST_MAX_AGE, reset)
        if rule is not None:
            which = "new partitions" if rule.max_age_ms is None else f"partitions not older than {rule.max_age_ms} ms"
            log.info("group %s: %s begin at %s, with either group protocol", group, which, rule.start.value)
        return rule


def take_out(
    config: Mapping[str, Any], spelled: Callable[[str], str], is_known: Callable[[str, Any], bool]
) -> OwnOptions:
    """Divide a consumer's configuration.

    ``spelled``: an option's name as the client library would have it; ``is_known``: whether it has it, by that name and
    the value. Raises ``RuleError`` with that name in it.
    """
    rest, options, is_native = dict(config), Options(), False
    for option in (LATEST_MAX_AGE, NEW_PARTITIONS):
        name = spelled(option)
        if name not in rest:
            continue
        if is_known(name, rest[name]):
            is_native = True
            continue
        value = rest.pop(name)
        if value is None:
            continue
        try:
            said = (
                Options(latest_max_age_ms=parse_max_age(value))
                if option == LATEST_MAX_AGE
                else Options(new_partitions=parse_new_partitions(value))
            )
        except RuleError as error:
            raise RuleError(f"{name} {error}") from None
        options = said.over(options)
    return OwnOptions(rest, options, is_native)
