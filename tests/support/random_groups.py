"""Groups at random to ask assignors about: as clients make them over several generations, and as no client would."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from random import Random

from support.java_assignors import AskedGroup, Shares, sticky_user_data
from tidegate.kafka.assignors.assignor import COOPERATIVE_STICKY, STICKY
from tidegate.kafka.assignors.members import NO_GENERATION, Partitions
from tidegate.kafka.model import Subscription, TopicPartition

NOWHERE = "not-there"
"""A topic that members name and that does not exist."""


@dataclass(slots=True)
class _Client:
    """``had``: what it was given in generation ``generation``."""

    topics: frozenset[str]
    instance_id: str | None
    had: Partitions = frozenset()
    generation: int = NO_GENERATION

    def subscription(self, assignor: str, tells_generation: bool) -> Subscription:
        if assignor == STICKY:
            data = None if self.generation == NO_GENERATION else sticky_user_data(self.had, self.generation)
            named = self.generation if tells_generation else NO_GENERATION
            return Subscription(self.topics, frozenset(), named, 1, data)
        if assignor == COOPERATIVE_STICKY:
            # It gives up a topic before it joins without it.
            kept = frozenset(p for p in self.had if p.topic in self.topics)
            return Subscription(self.topics, kept, self.generation, 3)
        return Subscription(self.topics)


def histories(random: Random, assignor: str, groups: int) -> Iterator[Generator[AskedGroup, Shares, None]]:
    """Groups of clients, each over some generations, ``groups`` generations in all at least. A generator yields a group
    and is sent what its members were given.
    """
    told = 0

    def counted() -> Generator[AskedGroup, Shares, None]:
        nonlocal told
        history = _history(random, assignor)
        group = next(history, None)
        while group is not None:
            told += 1
            given = yield group
            try:
                group = history.send(given)
            except StopIteration:
                return

    while told < groups:
        yield counted()


def _history(random: Random, assignor: str) -> Generator[AskedGroup, Shares, None]:
    """Members join and leave, change what they read, and miss generations; topics grow."""
    topics = {f"t{number}": random.choice([0, 1, 1, 2, 3, 5, 8, 13]) for number in range(random.randint(1, 6))}
    alike = random.random() < 0.5
    named = [*topics, NOWHERE]

    def read() -> frozenset[str]:
        return frozenset(topics) if alike else frozenset(random.sample(named, random.randint(1, len(named))))

    clients = {
        member_id(random): _Client(read(), f"i{number}" if random.random() < 0.3 else None)
        for number in range(random.randint(1, 8))
    }
    generation = random.randint(1, 5)
    for _ in range(random.randint(1, 6)):
        order = random.sample(sorted(clients), len(clients))
        tells_generation = random.random() < 0.5
        said = {m: (clients[m].subscription(assignor, tells_generation), clients[m].instance_id) for m in order}
        given = yield AskedGroup(assignor, dict(topics), said)
        generation += 1
        for name, client in clients.items():
            client.had, client.generation = given[name], generation
        _change(random, clients, generation)
        if random.random() < 0.4 or not clients:
            clients[member_id(random)] = _Client(read(), None)
        if random.random() < 0.2:
            topics[random.choice(sorted(topics))] += random.randint(1, 3)
        if not alike and random.random() < 0.2:
            clients[random.choice(sorted(clients))].topics = read()


def _change(random: Random, clients: dict[str, _Client], generation: int) -> None:
    if random.random() < 0.3:
        del clients[random.choice(sorted(clients))]
    if clients and random.random() < 0.15:
        late = clients[random.choice(sorted(clients))]
        late.generation = max(NO_GENERATION, generation - random.randint(1, 3))


def claimed_at_will(random: Random, assignor: str) -> AskedGroup:
    """Members claim what they like of what exists, several of them the same, of any generation."""
    topics = {f"t{number}": random.choice([0, 1, 2, 5, 9]) for number in range(random.randint(2, 5))}
    everything = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    reads: list[frozenset[str]] = [frozenset(random.sample(sorted(topics), 1 + random.randrange(len(topics))))]
    if random.random() < 0.6:
        reads = [frozenset({"t0", "t1"}), frozenset({"t0"}), frozenset({"t1"}), frozenset(topics), frozenset()]
        random.shuffle(reads)
    members = {}
    of_what_they_read = random.random() < 0.7
    for number in range(random.randint(len(reads), 9)):
        topics_read = reads[number % len(reads)]
        claimed = frozenset(random.sample(everything, random.randint(0, len(everything))))
        if of_what_they_read:
            claimed = frozenset(p for p in claimed if p.topic in topics_read)
        generation = random.randint(NO_GENERATION, 3)
        data, owned = None, claimed
        if assignor == STICKY:
            data, owned = _any_user_data(random, claimed, generation), frozenset[TopicPartition]()
        elif assignor == COOPERATIVE_STICKY and random.random() < 0.3:
            data = random.randbytes(random.choice([0, 3, 4, 4, 5])) if random.random() < 0.3 else bytes([0, 0, 0, 2])
        instance_id = f"i{number}" if random.random() < 0.2 else None
        named = random.choice([NO_GENERATION, generation, random.randint(0, 3)])
        said = Subscription(topics_read, owned, named, 3, data)
        members[member_id(random)] = (said, instance_id)
    return AskedGroup(assignor, topics, members)


def unevenly_held(random: Random, assignor: str) -> AskedGroup:
    """Some dozens of partitions to a member on average, of which some have most; of the newest generation members also
    claim what they no longer read."""
    topics = {f"t{number}": random.choice([3, 10, 20, 40]) for number in range(random.randint(3, 8))}
    left = {TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)}
    everything = sorted(left)
    reads = [frozenset(random.sample(sorted(topics), random.randint(1, len(topics)))) for _ in range(4)]
    members = {}
    for _ in range(random.randint(3, 16)):
        topics_read = random.choice(reads)
        generation = random.choice([5, 5, 5, 4, 3])
        also_unread = generation == 5 and random.random() < 0.5
        of = everything if random.random() < 0.3 else sorted(left)
        share = random.choice([0, 0, 0.1, 0.3, 0.9])
        claimed = frozenset(p for p in of if (p.topic in topics_read or also_unread) and random.random() < share)
        left -= claimed
        data = sticky_user_data(claimed, generation) if assignor == STICKY else None
        owned = claimed if assignor == COOPERATIVE_STICKY else frozenset[TopicPartition]()
        members[member_id(random)] = (Subscription(topics_read, owned, generation, 3, data), None)
    return AskedGroup(assignor, topics, members)


def _any_user_data(random: Random, claimed: Partitions, generation: int) -> bytes | None:
    """Version 1 or 0 of it, or torn."""
    whole = sticky_user_data(claimed, random.choice([generation, None]))
    torn = whole[: random.randrange(len(whole))]
    return random.choice([whole, whole, whole, torn, whole + b"\x00", b"", None])


def member_id(random: Random) -> str:
    """As a coordinator makes it of a client id."""
    client_id = random.choice(["c", "consumer-payments-1", "reader\u00e9", "\U0001f40b", "\uff5e"])
    return f"{client_id}-{uuid.UUID(int=random.getrandbits(128))}"
