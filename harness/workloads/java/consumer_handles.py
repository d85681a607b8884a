"""Method handles of a Java consumer: they read all its positions at once, and queue the events of
its rebalances and commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from linkflap.harness.jvm.bridge import Bridge, Handle
from linkflap.harness.jvm.handles import Handles
from linkflap.harness.workloads.java.texts import (
    BETWEEN,
    OBJECT,
    STRING,
    THROWABLE,
    WITHIN,
    Texts,
    descriptor,
)

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
