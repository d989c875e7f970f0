"""Asking for many groups at once where one of them may be refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused
from tidegate.kafka.rights import Right, on_group

T = TypeVar("T")

GROUPS: Final = "Describe on the groups"
TOPICS: Final = "Describe on all topics of the groups"


class Refusal(NamedTuple):
    """Why there is no answer about a group. ``right``: the one that is missing, of all such groups; may be empty."""

    why: str
    right: str = ""


Ask = Callable[[Collection[str]], Mapping[str, T]]


def answers_of(
    group_ids: Sequence[str], ask: Ask[T], lacking: Callable[[Collection[Right]], Collection[Right]]
) -> tuple[dict[str, T], dict[str, Refusal]]:
    """The answers by group, and why there is none for the others.

    ``ask`` fails as a whole where one group is refused. So the groups that the principal may not describe are asked for
    (``lacking``) and left out; what is refused all the same is found by halving. Where nobody answers, none of these
    groups has an answer: halving would wait again each time.
    """
    if not group_ids:
        return {}, {}
    try:
        return dict(ask(group_ids)), {}
    except (NotAuthorized, Refused):
        pass
    except KafkaFailure as failure:
        return {}, dict.fromkeys(group_ids, Refusal(str(failure)))
    try:
        missing = {right.name: right for right in lacking([on_group("Describe", name) for name in group_ids])}
    except KafkaFailure:
        missing = {}
    refused = {name: Refusal(f"the principal lacks {right}", GROUPS) for name, right in missing.items()}
    found, others = _halved([name for name in group_ids if name not in refused], ask)
    return found, refused | others


def _halved(group_ids: Sequence[str], ask: Ask[T]) -> tuple[dict[str, T], dict[str, Refusal]]:
    if not group_ids:
        return {}, {}
    try:
        return dict(ask(group_ids)), {}
    except (NotAuthorized, Refused) as failure:
        if len(group_ids) == 1:
            # The group may be described: a KIP-848 group is refused as well where one of its topics may not be.
            right = TOPICS if isinstance(failure, NotAuthorized) else ""
            return {}, {group_ids[0]: Refusal(str(failure), right)}
    except KafkaFailure as failure:
        return {}, dict.fromkeys(group_ids, Refusal(str(failure)))
    middle = len(group_ids) // 2
    (found, refused), (others, more) = _halved(group_ids[:middle], ask), _halved(group_ids[middle:], ask)
    return found | others, refused | more
