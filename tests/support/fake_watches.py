"""Lists and follows a `FakeKube`'s objects; `tests/contract/test_watches.py` runs against it and the real thing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from support.fake_kube import FakeKube
from tidegate.kube.ports import Kind, Object, uid_of
from tidegate.kube.watching import Change, Listing


class FakeWatches:
    """Implements `tidegate.kube.watching.Watches`. `seconds`: how long one watch lasts."""

    def __init__(self, kube: FakeKube, *, seconds: float = 0.3) -> None:
        self._kube = kube
        self._looks = max(1, round(seconds / 0.02))
        self._seen: dict[str, dict[str, Object]] = {}
        self.over = threading.Event()

    def listed(self, kind: Kind) -> Listing:
        found = {uid_of(body): body for body in self._kube.list(kind)}
        self._seen[kind.plural] = found
        return Listing(tuple(found.values()), "0")

    def changes(self, kind: Kind, since: str) -> Iterator[Change]:
        for _ in range(self._looks):
            before, now = self._seen[kind.plural], {uid_of(body): body for body in self._kube.list(kind)}
            self._seen[kind.plural] = now
            for uid, body in now.items():
                if before.get(uid, {}).get("metadata") != body["metadata"]:
                    yield Change(body, False, body["metadata"]["resourceVersion"])
            for uid in before.keys() - now.keys():
                yield Change(before[uid], True, since)
            if self.over.wait(0.02):
                return
