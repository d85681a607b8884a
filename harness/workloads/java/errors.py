"""Errors of Java clients in confluent-kafka's form: the protocol's code and name, and whether the
client can abort or is dead.

`org.apache.kafka.common.protocol.Errors` maps Java's exception classes to the protocol's codes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from linkflap.harness.jvm import Bridge, Handle, Handles

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
_BETWEEN: Final = "\x01"


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
        values = bridge.java.java.util.EnumSet.allOf(handles.named(name))
        exception = handles.method(name, "exceptionName", "()Ljava/lang/String;")
        code = handles.then(
            handles.cast(handles.method(name, "code", "()S"), f"(L{name.replace('.', '/')};)I"),
            handles.static("java.lang.String", "valueOf", "(I)Ljava/lang/String;"),
        )
        null_safe = handles.static(
            "java.lang.String", "valueOf", "(Ljava/lang/Object;)Ljava/lang/String;"
        )
        listed = [
            str(
                handles.as_a(
                    "java.util.function.Function", handles.each(one, between=_BETWEEN)
                ).apply(values)
            ).split(_BETWEEN)
            for one in (
                handles.then(
                    handles.cast(exception, f"(L{name.replace('.', '/')};)Ljava/lang/Object;"),
                    null_safe,
                ),
                code,
            )
        ]
        self._codes: Mapping[str, int] = (
            dict(zip(listed[0], map(int, listed[1]), strict=True)) | _OWN
        )

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

    def raising(self, error: JavaError) -> KafkaException:
        """The exception that confluent-kafka's consumer would raise."""
        return KafkaException(self.of(error.kind, error.text))
