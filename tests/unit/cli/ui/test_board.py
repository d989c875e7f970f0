"""What a tab of ``tidegate ui`` is told, and what it costs; and that the watches go on whatever the API server says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidegate.cli.ui import board as board_module
from tidegate.cli.ui.board import Board, Listener, News, TooManyListeners
from tidegate.cli.ui.following import follow
from tidegate.kube.ports import APPROVALS, CONNECTIONS, PAUSES, RESETS, Kind, KubeFailure, KubeUnavailable, NotFound
from tidegate.kube.watching import Change, Expired, Listing

KINDS = (RESETS, PAUSES)


def reset(name: str, phase: str = "Planning", version: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": RESETS.api_version,
        "kind": RESETS.kind,
        "metadata": {"namespace": "shop", "name": name, "uid": f"u-{name}", "resourceVersion": str(version)},
        "spec": {"connectionRef": {"name": "prod"}, "group": "g", "to": {"earliest": {}}},
        "status": {"phase": phase},
    }


def names(news: News | None) -> list[str]:
    assert news is not None
    return [line["name"] for line in news.lines]


def listening(board: Board, act: Callable[[Listener], Any]) -> Any:
    async def run() -> Any:
        listener = board.listen()
        try:
            return await act(listener)
        finally:
            listener.close()

    return asyncio.run(run())


# --- what a tab is told -----------------------------------------------------------------------------------------------


def test_a_tab_is_told_everything_first_and_then_what_has_changed() -> None:
    board = Board(KINDS)
    board.replace(RESETS, [reset("a"), reset("b")])

    async def act(listener: Listener) -> tuple[News | None, News | None, News | None]:
        first = await listener.news(5)
        board.put(RESETS, reset("b", "Applying"))
        board.drop(RESETS, reset("a"))
        second = await listener.news(5)
        return first, second, await listener.news(0.01)

    first, second, third = listening(board, act)

    assert sorted(names(first)) == ["a", "b"]
    assert first.whole
    assert names(second) == ["b"]
    assert second.lines[0]["state"] == "Applying"
    assert second.gone == ("offsetresets/shop/a",)
    assert third is None


def test_a_slow_tab_keeps_what_has_changed_once_and_is_told_the_newest() -> None:
    board = Board(KINDS)
    board.replace(RESETS, [reset("a")])

    async def act(listener: Listener) -> tuple[int, News | None]:
        await listener.news(5)
        for n in range(1000):
            board.put(RESETS, reset("a", "Applying" if n % 2 else "Verifying"))
        return listener.waiting, await listener.news(5)

    waiting, news = listening(board, act)

    assert waiting == 1
    assert [line["state"] for line in news.lines] == ["Applying"]


def test_a_tab_that_would_keep_too_much_is_told_everything_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "MOST_CHANGES", 3)
    board = Board(KINDS)

    async def act(listener: Listener) -> tuple[int, News | None]:
        await listener.news(5)
        for n in range(10):
            board.put(RESETS, reset(f"r{n}"))
        return listener.waiting, await listener.news(5)

    waiting, news = listening(board, act)

    assert waiting == 0
    assert news.whole
    assert len(news.lines) == 10


def test_there_is_a_bound_on_tabs_and_a_closed_one_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "MOST_LISTENERS", 1)
    board = Board(KINDS)

    async def act(listener: Listener) -> None:
        with pytest.raises(TooManyListeners):
            board.listen()
        listener.close()
        board.listen().close()

    listening(board, act)


def test_listing_anew_tells_only_what_has_changed_meanwhile() -> None:
    board = Board(KINDS)
    board.replace(RESETS, [reset("same"), reset("gone")])

    async def act(listener: Listener) -> News | None:
        await listener.news(5)
        board.replace(RESETS, [reset("same"), reset("new")])
        return await listener.news(5)

    news = listening(board, act)

    assert names(news) == ["new"]
    assert news.gone == ("offsetresets/shop/gone",)


def test_an_object_that_cannot_be_read_leaves_the_others_shown() -> None:
    board = Board(KINDS)

    board.replace(RESETS, [reset("a"), {**reset("b"), "spec": "nonsense"}])

    assert names(board.everything()) == ["a"]


def test_an_object_that_cannot_be_read_any_more_is_not_shown_as_it_was() -> None:
    board = Board(KINDS)
    board.replace(RESETS, [reset("a"), reset("b")])

    async def act(listener: Listener) -> News | None:
        await listener.news(5)
        board.put(RESETS, {**reset("b"), "spec": "nonsense"})
        return await listener.news(5)

    news = listening(board, act)

    assert news.gone == ("offsetresets/shop/b",)
    assert names(board.everything()) == ["a"]


def test_a_kind_that_may_not_be_listed_is_said_and_the_rest_is_shown() -> None:
    board = Board(KINDS)
    board.replace(RESETS, [reset("a")])
    board.troubled(PAUSES, "list consumergrouppauses: 403 forbidden")

    news = board.everything()

    assert names(news) == ["a"]
    assert news.trouble == {"consumergrouppauses": "list consumergrouppauses: 403 forbidden"}
    assert news.ready
    with pytest.raises(KubeFailure, match="403"):
        board.list(PAUSES)


def test_until_each_kind_was_asked_for_nobody_is_told_that_there_is_nothing() -> None:
    board = Board(KINDS)
    board.replace(RESETS, [])

    assert not board.everything().ready
    with pytest.raises(KubeFailure, match="not listed yet"):
        board.list(PAUSES)
    with pytest.raises(NotFound):
        board.get(RESETS, "shop", "a")


def test_approvals_have_no_line_and_still_wake_the_page_of_their_reset() -> None:
    board = Board((APPROVALS,))
    board.replace(APPROVALS, [{"metadata": {"namespace": "shop", "name": "x", "uid": "u"}, "spec": {"reset": "r"}}])

    assert board.everything().lines == ()
    assert len(board.list(APPROVALS)) == 1


# --- watches ----------------------------------------------------------------------------------------------------------


class Scripted:
    """Says what it was told to, one watch after the other; then it is over."""

    def __init__(self, listings: list[Any], watches: list[list[Any]]) -> None:
        self.listings, self.watches = listings, watches
        self.since: list[str] = []
        self.waited: list[float] = []

    def listed(self, _kind: Kind) -> Listing:
        said = self.listings.pop(0)
        if isinstance(said, Exception):
            raise said
        assert isinstance(said, Listing)
        return said

    def changes(self, _kind: Kind, since: str) -> Iterator[Change]:
        self.since.append(since)
        for said in self.watches.pop(0):
            if isinstance(said, Exception):
                raise said
            yield said

    def wait(self, seconds: float) -> bool:
        if seconds:
            self.waited.append(seconds)
        return not self.watches


def followed(listings: list[Any], watches: list[list[Any]]) -> tuple[Board, Scripted]:
    board, scripted = Board((RESETS,)), Scripted(listings, watches)
    follow(RESETS, scripted, board, scripted.wait)
    return board, scripted


def test_a_watch_that_is_ended_goes_on_from_where_it_was() -> None:
    board, scripted = followed(
        [Listing((reset("a"),), "5")],
        [[Change(reset("b"), False, "6"), Change(None, False, "9")], [Change(reset("a"), True, "10")]],
    )

    assert scripted.since == ["5", "9"]
    assert names(board.everything()) == ["b"]


@pytest.mark.parametrize("lost", [Expired("410 gone"), KubeUnavailable("connection reset")])
def test_a_watch_that_is_lost_lists_anew(lost: Exception) -> None:
    board, scripted = followed(
        [Listing((reset("a"),), "5"), Listing((reset("c"),), "90")], [[Change(reset("b"), False, "6"), lost], []]
    )

    assert scripted.since == ["5", "90"]
    assert names(board.everything()) == ["c"]
    assert board.trouble == {}


def test_without_the_right_it_asks_again_less_and_less_often() -> None:
    refused = KubeFailure("list offsetresets: 403 forbidden")
    board, scripted = followed([refused] * 7 + [Listing((), "1")], [[]])

    assert scripted.waited[:7] == [2, 4, 8, 16, 30, 30, 30]
    assert board.trouble == {}


def test_with_the_right_to_list_and_not_to_watch_it_lists_less_and_less_often() -> None:
    refused = KubeFailure("watch offsetresets: 403 forbidden")
    told: list[list[Any]] = [[refused]] * 5 + [[Change(reset("b"), False, "2")], []]
    board, scripted = followed([Listing((reset("a"),), "1")] * 6, told)

    assert scripted.waited[:6] == [2, 4, 8, 16, 30, 1]
    assert names(board.everything()) == ["a", "b"]


def test_while_it_is_refused_the_page_says_so() -> None:
    board = Board((CONNECTIONS,))

    class Refused(Scripted):
        def wait(self, seconds: float) -> bool:
            return bool(seconds)

    scripted = Refused([KubeFailure("list kafkaconnections: 403 \x1b[31m")], [])
    follow(CONNECTIONS, scripted, board, scripted.wait)

    assert board.trouble == {"kafkaconnections": "list kafkaconnections: 403 \\x1b[31m"}
