"""Method handles of Java producers: they send many records at a time, and read the outcome of
each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from linkflap.harness.jvm.bridge import Bridge, Handle
from linkflap.harness.jvm.handles import Handles
from linkflap.harness.workloads.java.texts import (
    BETWEEN,
    OBJECT,
    STRING,
    THROWABLE,
    Texts,
    descriptor,
)

_FUTURE: Final = "java.util.concurrent.Future"
_RECORD: Final = "org.apache.kafka.clients.producer.ProducerRecord"
_METADATA: Final = "org.apache.kafka.clients.producer.RecordMetadata"


class ProducerHandles:
    """Made once for all producers of a process."""

    def __init__(self, bridge: Bridge, h: Handles, texts: Texts) -> None:
        self._bridge, self._h, self._texts = bridge, h, texts
        self._decode_and_send = self._sending()
        self._outcomes = self._reporting()
        self._waiter = self._waiting()

    def send(self, data: bytes, sender: Handle) -> None:
        """Makes a sender send serialized records."""
        self._decode_and_send.accept(data, sender)

    def _sending(self) -> Handle:
        """(bytes, a handle for one record): passes the records of a serialized array to it, one by
        one."""
        h = self._h
        decode = h.then(
            h.cast(h.new("java.io.ByteArrayInputStream", "([B)V"), "([B)Ljava/io/InputStream;"),
            h.new("java.io.ObjectInputStream", "(Ljava/io/InputStream;)V"),
            h.cast(
                h.method("java.io.ObjectInputStream", "readObject", f"(){OBJECT}"),
                f"(Ljava/io/ObjectInputStream;)[{OBJECT}",
            ),
            h.static("java.util.Arrays", "stream", f"([{OBJECT})Ljava/util/stream/Stream;"),
        )
        every = h.method(
            "java.util.stream.Stream", "forEachOrdered", "(Ljava/util/function/Consumer;)V"
        )
        return h.as_a("java.util.function.BiConsumer", h.fed(every, 0, decode))

    def sender(
        self, producer: Handle, futures: Handle, topic: str, partition: int, headers: Sequence[str]
    ) -> Handle:
        """A handle that sends one record to a partition, from an array of its key, value and header
        values, and adds its future to the list."""
        h = self._h
        header = descriptor("org.apache.kafka.common.header.internals.RecordHeader")
        made_header = h.new(
            "org.apache.kafka.common.header.internals.RecordHeader", f"({STRING}[B)V"
        )
        made = [
            h.then(h.item("[[B", number), h.given(made_header, 0, name))
            for number, name in enumerate(headers, start=2)
        ]
        listed = h.static("java.util.List", "of", f"({OBJECT * len(made)})Ljava/util/List;")
        if made:
            listed = h.cast(listed, f"({header * len(made)})Ljava/util/List;")
            listed = h.of_one(h.fed(listed, 0, *made), "([[B)Ljava/util/List;", len(made))
        else:
            listed = h.ignoring(listed, 0, "[[B")
        new = h.new(
            _RECORD,
            f"({STRING}Ljava/lang/Integer;Ljava/lang/Long;{OBJECT}{OBJECT}Ljava/lang/Iterable;)V",
        )
        record = h.cast(
            h.given(new, 0, topic, partition, None), f"([B[BLjava/util/List;){descriptor(_RECORD)}"
        )
        record = h.fed(record, 0, h.item("[[B", 0), h.item("[[B", 1), listed)
        record = h.of_one(record, f"([[B){descriptor(_RECORD)}", 3)
        send = h.method(
            "org.apache.kafka.clients.producer.Producer",
            "send",
            f"({descriptor(_RECORD)}){descriptor(_FUTURE)}",
        )
        add = h.method("java.util.List", "add", f"({OBJECT})Z")
        add = h.cast(h.given(add, 0, futures), f"({descriptor(_FUTURE)})Z")
        return h.as_a(
            "java.util.function.Consumer", h.then(record, h.given(send, 0, producer), add)
        )

    def futures(self) -> tuple[Handle, Callable[[], None]]:
        """A list for futures, and what empties it: a list of Java's is one of Python's for py4j,
        whose `clear` is not Java's."""
        futures = self._bridge.java.java.util.ArrayList()
        clear = self._h.given(self._h.method("java.util.List", "clear", "()V"), 0, futures)
        return futures, self._h.as_a("java.lang.Runnable", clear).run

    def outcomes(self, futures: Handle) -> list[str]:
        """What became of each record: its offset, `!` and the exception, or nothing while it is not
        known."""
        return str(self._outcomes.apply(futures)).split(BETWEEN)

    def _reporting(self) -> Handle:
        h = self._h
        got = h.then(
            h.cast(
                h.method(_FUTURE, "get", f"(){OBJECT}"),
                f"({descriptor(_FUTURE)}){descriptor(_METADATA)}",
            ),
            h.method(_METADATA, "offset", "()J"),
            self._texts.of_long,
        )
        failed = h.then(
            h.cast(self._texts.of, f"({THROWABLE}){STRING}"), h.given(self._texts.concat, 0, "!")
        )
        done = h.caught(got, "java.lang.Exception", failed)
        unknown = h.ignoring(h.constant("java.lang.String", ""), 0, _FUTURE)
        outcome = h.when(h.method(_FUTURE, "isDone", "()Z"), done, unknown)
        return h.as_a("java.util.function.Function", h.each(outcome, between=BETWEEN))

    def wait(self, future: Handle) -> None:
        """Waits a little for a record's delivery."""
        self._waiter.accept(future)

    def _waiting(self) -> Handle:
        h = self._h
        get = h.method(_FUTURE, "get", f"(JLjava/util/concurrent/TimeUnit;){OBJECT}")
        get = h.given(get, 1, 20, self._bridge.java.java.util.concurrent.TimeUnit.MILLISECONDS)
        get = h.cast(get, f"({descriptor(_FUTURE)})V")
        nothing = h.cast(
            h.ignoring(h.constant("java.lang.Object", None), 0, "java.lang.Exception"),
            f"({THROWABLE})V",
        )
        return h.as_a("java.util.function.Consumer", h.caught(get, "java.lang.Exception", nothing))
