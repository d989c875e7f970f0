"""A broker on a socket that says who coordinates, which is itself, and may fall silent at a request."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from kafka.protocol.metadata import (
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataResponse,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

_VERSIONS: Final = {
    MetadataResponse: (0, 12),
    FindCoordinatorResponse: (0, 4),
    ApiVersionsResponse: (0, 3),
    InitProducerIdResponse: (0, 5),
    AddOffsetsToTxnResponse: (0, 4),
    EndTxnResponse: (0, 5),
    TxnOffsetCommitResponse: (0, 5),
}
"""Of requests by their answers, as Kafka 4.3 offers those of transactions."""

_KINDS: Final = {int(kind.API_KEY): kind for kind in _VERSIONS}


class SilentBroker(socketserver.ThreadingTCPServer):
    """``silent``: names of requests that are read and never answered, as by a broker that is stopped there."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.silent: Collection[str] = ()
        self.heard: list[str] = []
        self.versions: dict[str, int] = {}
        self.talking: set[socket.socket] = set()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def hang_up(self) -> None:
        for one in list(self.talking):
            with suppress(OSError):  # the other side was faster
                one.shutdown(socket.SHUT_RDWR)

    def answer(self, kind: Any, version: int, payload: bytes) -> Any:
        host, port = "127.0.0.1", self.server_address[1]
        if kind is ApiVersionsResponse:
            rows = [
                kind.ApiVersion(api_key=int(k.API_KEY), min_version=low, max_version=high)
                for k, (low, high) in _VERSIONS.items()
            ]
            return kind(error_code=0, api_keys=rows)
        if kind is MetadataResponse:
            me = kind.MetadataResponseBroker(node_id=1, host=host, port=port, rack=None)
            return kind(brokers=[me], cluster_id="silent", controller_id=1, topics=[])
        if kind is FindCoordinatorResponse:
            keys = FindCoordinatorRequest.decode(payload, version=version).coordinator_keys
            rows = [kind.Coordinator(key=key, node_id=1, host=host, port=port, error_code=0) for key in keys]
            return kind(coordinators=rows)
        if kind is InitProducerIdResponse:
            return kind(error_code=0, producer_id=7, producer_epoch=3)
        if kind is TxnOffsetCommitResponse:
            topic_class = kind.TxnOffsetCommitResponseTopic
            partition_class = topic_class.TxnOffsetCommitResponsePartition
            topics = TxnOffsetCommitRequest.decode(payload, version=version).topics
            return kind(
                topics=[
                    topic_class(
                        name=topic.name,
                        partitions=[
                            partition_class(partition_index=row.partition_index, error_code=0)
                            for row in topic.partitions
                        ],
                    )
                    for topic in topics
                ]
            )
        return kind(error_code=0)


class _Conversation(socketserver.StreamRequestHandler):
    server: SilentBroker

    def setup(self) -> None:
        super().setup()
        self.server.talking.add(self.request)

    def finish(self) -> None:
        self.server.talking.discard(self.request)
        super().finish()

    def handle(self) -> None:
        while len(size := self.rfile.read(4)) == 4:
            frame = self.rfile.read(int.from_bytes(size, "big"))
            key, version, correlation, length = struct.unpack(">hhih", frame[:10])
            kind = _KINDS[key]
            name = str(kind.__name__).removesuffix("Response")
            self.server.heard.append(name)
            self.server.versions[name] = version
            if name in self.server.silent:
                continue
            flexible = bool(kind.flexible_version_q(version))
            payload = frame[10 + max(length, 0) + (1 if flexible else 0) :]
            answer = self.server.answer(kind, version, payload)
            answer.API_VERSION = version
            answer.with_header(correlation_id=correlation)
            self.wfile.write(answer.encode(header=True, framed=True))


@contextmanager
def silent_broker() -> Iterator[SilentBroker]:
    with SilentBroker() as broker:
        thread = threading.Thread(target=broker.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield broker
        finally:
            broker.shutdown()
            broker.hang_up()
            thread.join()
