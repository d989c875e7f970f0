"""On what Java's consumers are tried by night: every pair of client, protocol, packaging and JDK there can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Final

from devstack.java_clients import CLIENT_VERSIONS
from support.java_applications import Java, Packaging

JDKS: Final = (11, 17, 21)
PROTOCOLS: Final = ("classic", "consumer")
PACKAGINGS: Final = (Packaging.PLAIN, Packaging.RELOCATED, Packaging.BOOT)

UNGOVERNED: Final = Java("3.7.2", "consumer")
"""In kafka-clients before 3.9 KIP-848 is a preview; the agent leaves its consumers alone."""

Pair = tuple[tuple[str, object], tuple[str, object]]


def everything() -> list[Java]:
    """All there can be that the agent governs."""
    return list(_possible())


def _possible() -> Iterator[Java]:
    for client, protocol, packaging, jdk in product(CLIENT_VERSIONS, PROTOCOLS, PACKAGINGS, JDKS):
        try:
            java = Java(client, protocol, packaging, jdk)
        except ValueError:  # says why there is no such thing
            continue
        if java != replace(UNGOVERNED, packaging=packaging, jdk=jdk):
            yield java


def pairs(java: Java) -> set[Pair]:
    """Its values, two by two."""
    values = [("client", java.client), ("protocol", java.protocol), ("packaging", java.packaging), ("jdk", java.jdk)]
    return set(combinations(values, 2))


def pairwise(possible: Sequence[Java]) -> list[Java]:
    """Few of these that have each pair which any of them has; of two that add as many pairs, the first."""
    missing = set[Pair]().union(*map(pairs, possible))
    chosen: list[Java] = []
    while missing:
        best = max(possible, key=lambda java: len(pairs(java) & missing))
        missing -= pairs(best)
        chosen.append(best)
    return chosen
