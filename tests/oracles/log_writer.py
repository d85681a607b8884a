"""Writes logs of every kind that a broker writes for clients, as a function of a seed."""

from __future__ import annotations

import base64
import random
from typing import Any, cast

from confluent_kafka import Producer

from linkflap.harness.log import codecs
from linkflap.harness.model.payload import HEADER, encode
from linkflap.harness.wire.offsets import quiet

CODECS = tuple(codecs.NAMES.values())
TOPICS = {
    **{f"client-{codec}": {"message.timestamp.type": "CreateTime"} for codec in CODECS},
    **{
        f"broker-{codec}": {
            "message.timestamp.type": "LogAppendTime",
            "compression.type": codec.replace("none", "uncompressed"),
        }
        for codec in CODECS
    },
}
ACROSS = ("lz4", "none")
"""The compression types of clients that write to all topics."""
LONG_AGO = 1_000_000_000_000
"""Milliseconds: a timestamp that the client chose."""


def client_codec(topic: str) -> str:
    """The compression types of clients, for topics that the broker recompresses with another
    codec."""
    side, codec = topic.split("-")
    return codec if side == "client" else "zstd" if codec != "zstd" else "gzip"


class Writer:
    """Writes to every topic in turn. Everything is a function of the seed."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._random = random.Random(7)
        self._uid = 0
        self._refused: list[object] = []

    def end(self) -> None:
        """Sends that failed are not compared."""
        assert not self._refused

    def producer(self, codec: str, **settings: object) -> Producer:
        callbacks = {"on_delivery": lambda error, _: self._refused.append(error) if error else None}
        return Producer(
            {
                **quiet(self._bootstrap),
                "compression.type": codec,
                "linger.ms": 20,
                **callbacks,
                **settings,
            }
        )

    def text(self, size: int) -> bytes:
        """A value that no codec makes much smaller, and that the tool prints on one line."""
        return base64.b64encode(self._random.randbytes(size))

    def write(
        self, producer: Producer, topic: str, count: int, size: int = 20, **rest: Any
    ) -> None:
        for _ in range(count):
            self._uid += 1
            headers = [(HEADER, encode(self._uid, self._uid - self._uid % 3, self._uid % 1000))]
            producer.produce(
                topic,
                self.text(size),
                b"key %d" % self._uid,
                partition=0,
                headers=cast(Any, headers),
                **rest,
            )
            producer.poll(0)

    def odd(self, producer: Producer, topic: str) -> None:
        """Null and empty keys and values, null header values, many headers, and unordered
        timestamps."""
        produce = producer.produce
        produce(topic, None, None, partition=0)
        produce(topic, b"", b"", partition=0, timestamp=LONG_AGO + 5)
        produce(
            topic,
            b"value",
            None,
            partition=0,
            timestamp=LONG_AGO,
            headers=[("a", None), ("a", b""), ("b", b"\x00\xff")],
        )
        produce(
            topic,
            None,
            b"key",
            partition=0,
            timestamp=LONG_AGO + 9_999_999,
            headers=[(f"h{n}", b"x" * n) for n in range(70)],
        )
        produce(
            topic,
            "ümlaut €".encode(),
            b"k",
            partition=0,
            headers=[("ß", b"x"), (HEADER, b"not ours")],
        )

    def one_client(self, topic: str) -> None:
        codec = client_codec(topic)
        plain = self.producer(codec, acks=1)
        self.odd(plain, topic)
        assert plain.flush(60) == 0
        self.write(plain, topic, 1)
        assert plain.flush(60) == 0
        idempotent = self.producer(codec, **{"enable.idempotence": True})
        for _ in range(3):
            self.write(idempotent, topic, 7)
            assert idempotent.flush(60) == 0
        for kind in ("commit", "abort", "commit"):
            self.odd(plain, topic)
            with_transactions = self.producer(codec, **{"transactional.id": f"{topic}-{kind}"})
            with_transactions.init_transactions(60)
            for number in range(2):
                with_transactions.begin_transaction()
                self.write(with_transactions, topic, 5, 200)
                assert plain.flush(60) == 0
                end = (
                    with_transactions.abort_transaction
                    if (number == 0) == (kind == "abort")
                    else with_transactions.commit_transaction
                )
                assert with_transactions.flush(60) == 0
                end(60)
        for count, size in ((40, 1000), (1, 30_000), (40, 900)):
            self.write(plain, topic, count, size)
            assert plain.flush(60) == 0

    def across(self) -> Producer:
        """Transactions over all topics at once. The last one stays open, so the caller must keep
        its producer."""
        both = self.producer(ACROSS[0], **{"transactional.id": "across"})
        both.init_transactions(60)
        for end in (both.abort_transaction, both.commit_transaction, None):
            both.begin_transaction()
            for topic in TOPICS:
                self.write(both, topic, 3)
            assert both.flush(60) == 0
            if end:
                end(60)
        last = self.producer(ACROSS[1], acks=1)
        for topic in TOPICS:
            self.write(last, topic, 2)
        assert last.flush(60) == 0
        return both
