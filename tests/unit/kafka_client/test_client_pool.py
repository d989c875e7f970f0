"""Connections that several clients share: opened once, and closed when nobody has used them for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.kafka.connection import Authentication, Connection
from tidegate.kafka_client.client_pool import ClientPool

ONE = Connection("one:9092", properties={"client.id": "x", "client.rack": "a"})


@dataclass
class Client:
    """Stands for a ``KafkaClient``, which connects when it is first asked for something."""

    connection: Connection
    closed: bool = False
    told: Callable[[], None] | None = None

    def sharing(self, closed: Callable[[], None]) -> Client:
        return Client(self.connection, told=closed)

    def close(self) -> None:
        self.closed = True
        if self.told is not None:
            told, self.told = self.told, None
            told()


@dataclass
class World:
    opened: list[Client] = field(default_factory=list)
    later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    pool: ClientPool = field(init=False)

    def __post_init__(self) -> None:
        opener: Any = self._open
        self.pool = ClientPool(opener, kept_s=30.0, after=lambda seconds, call: self.later.append((seconds, call)))

    def _open(self, connection: Connection) -> Client:
        self.opened.append(Client(connection))
        return self.opened[-1]

    def pass_time(self) -> None:
        later, self.later = self.later, []
        for seconds, call in later:
            assert seconds == 30.0
            call()


def test_equal_connections_are_opened_once() -> None:
    world = World()
    world.pool.open(ONE)
    world.pool.open(Connection("one:9092", properties={"client.rack": "a", "client.id": "x"}))
    assert len(world.opened) == 1
    world.pool.open(Connection("one:9092", properties={"client.id": "y"}))
    world.pool.open(Connection("one:9092", authentication=Authentication(username="somebody")))
    assert len(world.opened) == 3


def test_connections_are_opened_anew_once_a_secret_has_changed(tmp_path: Path) -> None:
    """The path stays the same: a link to the folder of the newest version."""
    for version in ("v-1", "v-2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "password").write_text(version)
    link = tmp_path / "current"
    link.symlink_to("v-1")
    connection = Connection("one:9092", authentication=Authentication(password_file=link / "password"))
    world = World()
    world.pool.open(connection)
    world.pool.open(connection)
    assert len(world.opened) == 1
    link.unlink()
    link.symlink_to("v-2")
    world.pool.open(connection)
    assert len(world.opened) == 2


def test_connections_are_closed_once_nobody_has_used_them_for_a_while() -> None:
    world = World()
    first, second = world.pool.open(ONE), world.pool.open(ONE)
    first.close()
    world.pass_time()
    assert not world.opened[0].closed
    second.close()
    assert not world.opened[0].closed
    world.pass_time()
    assert world.opened[0].closed
    world.pool.open(ONE)
    assert len(world.opened) == 2


def test_connections_that_are_used_again_are_kept_for_as_long_from_their_next_end_on() -> None:
    world = World()
    world.pool.open(ONE).close()
    again = world.pool.open(ONE)
    earlier = world.later
    world.later = []
    again.close()
    for _, call in earlier:
        call()
    assert not world.opened[0].closed
    world.pass_time()
    assert world.opened[0].closed


def test_closing_a_client_twice_is_closing_it_once() -> None:
    world = World()
    used, other = world.pool.open(ONE), world.pool.open(ONE)
    other.close()
    other.close()
    world.pass_time()
    assert not world.opened[0].closed
    used.close()
    world.pass_time()
    assert world.opened[0].closed


def test_what_is_in_use_as_the_pool_is_closed_is_closed_by_its_user() -> None:
    world = World()
    used = world.pool.open(ONE)
    world.pool.open(Connection("two:9092")).close()
    world.pool.close()
    assert [client.closed for client in world.opened] == [False, True]
    used.close()
    world.pass_time()
    assert world.opened[0].closed
