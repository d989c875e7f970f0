"""What the health check goes by is listed however busy the operator is."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

from tidegate.kube.ports import PAUSES, RESETS, Kind, Object
from tidegate.running import Operator


def test_a_listing_waits_for_no_pass() -> None:
    there: dict[Kind, list[Object]] = {PAUSES: [{"metadata": {"name": "a"}}], RESETS: []}

    class Kube:
        def list(self, kind: Kind) -> list[Object]:
            return there[kind]

    passes_go_on = threading.Event()
    with ThreadPoolExecutor(1) as busy, ThreadPoolExecutor(1) as lister:
        busy.submit(passes_go_on.wait, 30)
        loops = {kind: SimpleNamespace(uids=frozenset({kind.plural})) for kind in there}
        operator: Any = SimpleNamespace(kube=Kube(), loops=loops, known={}, executor=busy, lister=lister)

        async def listed() -> list[tuple[Kind, list[Object]]]:
            async with asyncio.timeout(20):
                return await Operator._list_all(cast("Operator", operator))

        try:
            assert dict(asyncio.run(listed())) == there
            assert operator.known == {PAUSES: {PAUSES.plural}, RESETS: {RESETS.plural}}
        finally:
            passes_go_on.set()
