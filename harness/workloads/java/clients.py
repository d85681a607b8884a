"""The objects that the Java clients of one process share: their JVM, the method handles that pass
records and outcomes to and from it, and metadata in confluent-kafka's form.

The JVM starts and dies with the process of clients. It returns a poll's records and outcomes as
texts in one answer. Its errors have confluent-kafka's form: the protocol's code and name (by
`org.apache.kafka.common.protocol.Errors`), and whether the client can abort or is dead.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from linkflap.harness.jvm import Bridge, Handle, Handles
from linkflap.harness.model.payload import HEADER

STRING: Final = "Ljava/lang/String;"
OBJECT: Final = "Ljava/lang/Object;"
THROWABLE: Final = "Ljava/lang/Exception;"
BETWEEN: Final = "\x01"
"""Separates rows."""
WITHIN: Final = "\x02"
"""Separates the columns of a row."""


def rows_in(text: str) -> list[list[str]]:
    """The columns of each row in an answer."""
    return [row.split(WITHIN) for row in text.split(BETWEEN)] if text else []


def descriptor(name: str) -> str:
    """A class in the notation of method descriptors."""
    return f"L{name.replace('.', '/')};"


class Texts:
    """Method handles that build texts."""

    def __init__(self, h: Handles) -> None:
        self.concat = h.method("java.lang.String", "concat", f"({STRING}){STRING}")
        self.of = h.static("java.lang.String", "valueOf", f"({OBJECT}){STRING}")
        self.of_long = h.static("java.lang.String", "valueOf", f"(J){STRING}")


@dataclass(frozen=True, slots=True)
class Partitions:
    """A topic's partitions by number, as confluent-kafka's TopicMetadata has them."""

    partitions: range


@dataclass(frozen=True, slots=True)
class TopicsByName:
    """Topics by name, as confluent-kafka's ClusterMetadata has them."""

    topics: Mapping[str, Partitions]


_CONSUMER: Final = "org.apache.kafka.clients.consumer.Consumer"
_PARTITION: Final = "org.apache.kafka.common.TopicPartition"
_PATIENCE_MILLIS: Final = 50


class ConsumerHandles:
    """Made for each consumer from the objects that all clients of a process share."""

    def __init__(self, bridge: Bridge, h: Handles, texts: Texts) -> None:
        self._bridge, self._h, self._texts = bridge, h, texts
        self._patience = bridge.java.java.time.Duration.ofMillis(_PATIENCE_MILLIS)

    def positions(self, consumer: Handle) -> Callable[[Handle], str]:
        """A handle that returns a consumer's positions of a collection of partitions; -1 where it
        has none."""
        h = self._h
        position = h.method(
            _CONSUMER, "position", f"({descriptor(_PARTITION)}Ljava/time/Duration;)J"
        )
        position = h.then(
            h.given(h.given(position, 2, self._patience), 0, consumer), self._texts.of_long
        )
        none = h.ignoring(h.constant("java.lang.String", "-1"), 0, "java.lang.Exception")
        named = h.cast(self._texts.of, f"({descriptor(_PARTITION)}){STRING}")
        text = h.joined(
            named,
            h.caught(position, "java.lang.Exception", none),
            descriptor=f"({descriptor(_PARTITION)}){STRING}",
            between=WITHIN,
        )
        asked = h.as_a("java.util.function.Function", h.each(text, between=BETWEEN))
        return asked.apply  # type: ignore[no-any-return]

    def listener(self, consumer: Handle, queue: Handle) -> Handle:
        """A ConsumerRebalanceListener that queues each event, and pauses assigned partitions. So no
        record of them is returned before the poller has decided where to begin."""
        h = self._h
        method = "java.lang.reflect.Method"
        args = "[Ljava.lang.Object;"
        name = h.method(method, "getName", f"(){STRING}")
        of_args = h.static("java.util.Arrays", "toString", f"([{OBJECT}){STRING}")
        note = h.fed(
            self._texts.concat, 0, h.then(name, h.given(self._texts.concat, 1, " ")), of_args
        )
        add = h.given(h.method("java.util.Queue", "add", f"({OBJECT})Z"), 0, queue)
        note = h.then(note, h.cast(add, f"({STRING})V"))
        note = h.ignoring(note, 0, "java.lang.Object")
        pause = h.given(h.method(_CONSUMER, "pause", "(Ljava/util/Collection;)V"), 0, consumer)
        pause = h.then(h.item(args, 0), h.cast(pause, f"({OBJECT})V"))
        pause = h.ignoring(pause, 0, "java.lang.Object", method)
        equals = h.given(
            h.method("java.lang.String", "equals", f"({OBJECT})Z"), 0, "onPartitionsAssigned"
        )
        assigned = h.ignoring(h.then(name, h.cast(equals, f"({STRING})Z")), 0, "java.lang.Object")
        null = h.ignoring(h.constant("java.lang.Object", None), 0, "java.lang.Object", method, args)
        nothing = h.cast(null, f"({OBJECT}{descriptor(method)}[{OBJECT})V")
        whole = h.first(note, h.first(h.when(assigned, pause, nothing), null))
        handler = h.as_a("java.lang.reflect.InvocationHandler", whole)
        interface = h.named("org.apache.kafka.clients.consumer.ConsumerRebalanceListener")
        interfaces = self._bridge.gateway.new_array(self._bridge.java.java.lang.Class, 1)
        interfaces[0] = interface
        return self._bridge.java.java.lang.reflect.Proxy.newProxyInstance(
            interface.getClassLoader(), interfaces, handler
        )

    def committed(self, queue: Handle) -> Handle:
        """An OffsetCommitCallback that queues the outcome of a commit."""
        h = self._h
        text = h.then(
            h.cast(self._texts.of, f"({THROWABLE}){STRING}"),
            h.given(self._texts.concat, 0, "committed "),
        )
        add = h.given(h.method("java.util.Queue", "add", f"({OBJECT})Z"), 0, queue)
        done = h.ignoring(h.then(text, h.cast(add, f"({STRING})V")), 0, "java.util.Map")
        return h.as_a("org.apache.kafka.clients.consumer.OffsetCommitCallback", done)


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
        """The outcome of each record: its offset, `!` and the exception, or nothing while it is
        unknown."""
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


_CONSUMED: Final = "org.apache.kafka.clients.consumer.ConsumerRecord"
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArray"
_SERIALIZERS: Final = dict.fromkeys(("key.serializer", "value.serializer"), f"{_BYTES}Serializer")
_DESERIALIZERS: Final = dict.fromkeys(
    ("key.deserializer", "value.deserializer"), f"{_BYTES}Deserializer"
)


class JavaClients:
    """The Java clients of one process."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self._h = h = Handles(bridge)
        self.errors = Errors(bridge, h)
        kafka = bridge.java.org.apache.kafka
        self._make_producer = kafka.clients.producer.KafkaProducer
        self._make_consumer = kafka.clients.consumer.KafkaConsumer
        self._make_partition = kafka.common.TopicPartition
        self._make_offset = kafka.clients.consumer.OffsetAndMetadata
        self._make_map = bridge.java.java.util.HashMap
        self._make_list = bridge.java.java.util.ArrayList
        self._make_queue = bridge.java.java.util.concurrent.ConcurrentLinkedQueue
        self._millis = bridge.java.java.time.Duration.ofMillis
        self._to_text = bridge.java.java.util.Objects.toString
        self._partitions: dict[tuple[str, int], Handle] = {}
        self._durations: dict[int, Handle] = {}
        self.texts = Texts(h)
        self.producers = ProducerHandles(bridge, h, self.texts)
        self.consumers = ConsumerHandles(bridge, h, self.texts)
        self._records = self._reading()
        self._acquired: Handle | None = None

    # --- values

    def duration(self, seconds: float) -> Handle:
        millis = int(seconds * 1000)
        if millis not in self._durations:
            self._durations[millis] = self._millis(millis)
        return self._durations[millis]

    def partition(self, topic: str, partition: int) -> Handle:
        """A Java TopicPartition."""
        tp = topic, partition
        if tp not in self._partitions:
            self._partitions[tp] = self._make_partition(topic, partition)
        return self._partitions[tp]

    def partitions(self, partitions: Sequence[TopicPartition]) -> Handle:
        """A Java list of TopicPartitions."""
        made = self._make_list()
        for each in partitions:
            made.add(self.partition(each.topic, each.partition))
        return made

    def offsets(self, partitions: Sequence[TopicPartition]) -> Handle:
        """A Java map from partitions to offsets."""
        made = self._make_map()
        for each in partitions:
            made.put(self.partition(each.topic, each.partition), self._make_offset(each.offset))
        return made

    def queue(self) -> Handle:
        return self._make_queue()

    # --- producers

    def producer(self, config: Mapping[str, object]) -> Handle:
        """A KafkaProducer of bytes."""
        return self._make_producer(self.bridge.properties({**_SERIALIZERS, **config}))

    def states(self, producer: Handle) -> tuple[Callable[[], str], Callable[[], str]]:
        """Two handles: one returns the state of a producer's transactions, the other its producer
        id and epoch. Both are private in Java's producer, and no public method returns them."""
        field = producer.getClass().getDeclaredField("transactionManager")
        field.setAccessible(True)
        manager = field.get(producer)
        fields = [
            manager.getClass().getDeclaredField(name)
            for name in ("currentState", "producerIdAndEpoch")
        ]
        for each in fields:
            each.setAccessible(True)
        state, identity = (partial(self._field, each, manager) for each in fields)
        return state, identity

    def _field(self, field: Handle, owner: Handle) -> str:
        return str(self._to_text(field.get(owner)))

    # --- consumers

    def consumer(self, config: Mapping[str, object]) -> Handle:
        """A KafkaConsumer of bytes."""
        return self._make_consumer(self.bridge.properties({**_DESERIALIZERS, **config}))

    def read(self, records: Handle) -> list[tuple[str, int, int, bytes]]:
        """For each record of a poll: topic, partition, offset, and linkflap's header (empty:
        none)."""
        return [
            (topic, int(partition), int(offset), bytes.fromhex(header))
            for topic, partition, offset, header in rows_in(str(self._records.apply(records)))
        ]

    def _reading(self, *more: Handle) -> Handle:
        """For each record its partition and offset, linkflap's header, and `more` texts."""
        h = self._h
        one = descriptor(_CONSUMED)
        headers = "org.apache.kafka.common.header.Headers"
        header = "org.apache.kafka.common.header.Header"
        last = h.given(
            h.method(headers, "lastHeader", f"({STRING}){descriptor(header)}"), 1, HEADER
        )
        format_hex = h.method("java.util.HexFormat", "formatHex", f"([B){STRING}")
        format_hex = h.given(format_hex, 0, self.bridge.java.java.util.HexFormat.of())
        value = h.then(
            h.method(_CONSUMED, "headers", f"(){descriptor(headers)}"),
            last,
            h.method(header, "value", "()[B"),
            format_hex,
        )
        nothing = h.ignoring(
            h.constant("java.lang.String", ""), 0, "java.lang.NullPointerException"
        )
        value = h.caught(value, "java.lang.NullPointerException", nothing)
        partition = h.cast(h.method(_CONSUMED, "partition", "()I"), f"({one})J")
        row = h.joined(
            h.method(_CONSUMED, "topic", f"(){STRING}"),
            h.then(partition, self.texts.of_long),
            h.then(h.method(_CONSUMED, "offset", "()J"), self.texts.of_long),
            value,
            *more,
            descriptor=f"({one}){STRING}",
            between=WITHIN,
        )
        return h.as_a("java.util.function.Function", h.each_iterated(row, between=BETWEEN))

    # --- members of share groups

    def share_consumer(self, config: Mapping[str, object]) -> Handle:
        """A KafkaShareConsumer of bytes."""
        made = self.bridge.java.org.apache.kafka.clients.consumer.KafkaShareConsumer
        return made(self.bridge.properties({**_DESERIALIZERS, **config}))

    def acquired(self, records: Handle) -> list[tuple[str, int, int, bytes, int]]:
        """Like `read`, with each record's delivery count."""
        if self._acquired is None:
            count = self._h.method(_CONSUMED, "deliveryCount", "()Ljava/util/Optional;")
            unknown = self._h.given(
                self._h.method("java.util.Optional", "orElse", f"({OBJECT}){OBJECT}"), 1, "0"
            )
            count = self._h.then(count, unknown)
            self._acquired = self._reading(self._h.then(count, self.texts.of))
        return [
            (topic, int(partition), int(offset), bytes.fromhex(header), int(deliveries))
            for topic, partition, offset, header, deliveries in rows_in(
                str(self._acquired.apply(records))
            )
        ]

    def listed(self, records: Handle | None = None) -> Handle:
        """The records of a poll as a Java list."""
        made = self._make_list()
        if records is not None:
            add = self._h.given(self._h.method("java.util.List", "add", f"({OBJECT})Z"), 0, made)
            records.forEach(
                self._h.as_a("java.util.function.Consumer", self._h.cast(add, f"({OBJECT})V"))
            )
        return made

    def accepting(self, consumer: Handle) -> Handle:
        """A handle that makes a share consumer accept one record."""
        owner = "org.apache.kafka.clients.consumer.ShareConsumer"
        acknowledge = self._h.method(owner, "acknowledge", f"({descriptor(_CONSUMED)})V")
        return self._h.as_a("java.util.function.Consumer", self._h.given(acknowledge, 0, consumer))

    def admin(self, config: Mapping[str, object]) -> Handle:
        """An Admin."""
        return self.bridge.java.org.apache.kafka.clients.admin.Admin.create(
            self.bridge.properties(config)
        )


JVM_ENDED: Final = 4
"""Exit status of a process of clients whose JVM has ended."""
WRAPPERS: Final = (
    "java.util.concurrent.ExecutionException",
    "org.apache.kafka.common.KafkaException",
)
_OWN: Final = {
    "java.lang.IllegalStateException": KafkaError._STATE,
    "java.util.concurrent.TimeoutException": KafkaError._TIMED_OUT,
    "org.apache.kafka.clients.producer.BufferExhaustedException": KafkaError._QUEUE_FULL,
    "org.apache.kafka.clients.consumer.LogTruncationException": KafkaError.OFFSET_OUT_OF_RANGE,
    "org.apache.kafka.common.errors.TransactionAbortedException": KafkaError._PURGE_QUEUE,
}


class JavaError(Exception):
    """An exception that a Java client threw. `kind` is its class, or that of the innermost cause if
    it only wraps one."""

    def __init__(self, kind: str, text: str, thrown: Handle) -> None:
        super().__init__(text)
        self.kind, self.text, self.thrown = kind, text, thrown

    @property
    def simple(self) -> str:
        """The class without its package."""
        return self.kind.rpartition(".")[2]


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Converts Java's exceptions in a block to JavaError. Ends the process when its JVM has ended,
    because nothing works without it."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        kind, text = _innermost(error.java_exception)
        raise JavaError(kind, text, error.java_exception) from error
    except (Py4JError, OSError) as error:
        gone(str(error))


def gone(reason: str) -> None:
    """Ends this process because its JVM has ended."""
    sys.stderr.write(f"the JVM of the Java clients has ended ({reason})\n")
    sys.stderr.flush()
    os._exit(JVM_ENDED)


def _innermost(thrown: Handle) -> tuple[str, str]:
    kind = thrown.getClass().getName()
    while kind in WRAPPERS and (cause := thrown.getCause()) is not None:
        thrown, kind = cause, cause.getClass().getName()
    return str(kind), str(thrown.getMessage() or "")


class Errors:
    """The protocol's error code for a class of exceptions."""

    def __init__(self, bridge: Bridge, handles: Handles) -> None:
        name = "org.apache.kafka.common.protocol.Errors"
        exception = handles.cast(
            handles.method(name, "exceptionName", f"(){STRING}"), f"({descriptor(name)}){OBJECT}"
        )
        code = handles.cast(handles.method(name, "code", "()S"), f"({descriptor(name)})J")
        texts = Texts(handles)
        rows = handles.joined(
            handles.then(exception, texts.of),  # null for those without an exception
            handles.then(code, texts.of_long),
            descriptor=f"({descriptor(name)}){STRING}",
            between=WITHIN,
        )
        listed = handles.as_a("java.util.function.Function", handles.each(rows, between=BETWEEN))
        values = bridge.java.java.util.EnumSet.allOf(handles.named(name))
        known = {kind: int(number) for kind, number in rows_in(str(listed.apply(values)))}
        self._codes: Mapping[str, int] = known | _OWN

    def of(
        self,
        kind: str,
        text: str,
        *,
        fatal: bool = False,
        retriable: bool = False,
        abortable: bool = False,
    ) -> KafkaError:
        """The error of an exception of this class; `_FAIL` for unknown ones. Every text begins with
        the class."""
        words = f"{kind.rpartition('.')[2]}: {text}" if text else kind.rpartition(".")[2]
        code = self._codes.get(kind, KafkaError._FAIL)
        return KafkaError(
            code, words, fatal=fatal, retriable=retriable, txn_requires_abort=abortable
        )

    def delivery(self, text: str) -> KafkaError:
        """The error of a delivery, from the exception's own text (`Throwable.toString`)."""
        kind, _, words = text.partition(": ")
        while kind in WRAPPERS and words:
            inner, _, rest = words.partition(": ")
            if not inner.endswith(("Exception", "Error")) or " " in inner:
                break
            kind, words = inner, rest
        return self.of(kind, words)

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Raises Java's exceptions in a block as confluent-kafka's consumer would."""
        try:
            with raised():
                yield
        except JavaError as error:
            raise KafkaException(self.of(error.kind, error.text)) from error
