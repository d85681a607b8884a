"""Initialises, commits and aborts transactions, with outcomes that claim only what is certain
(Jepsen's ok, fail, info).

Calls are made in slices: after a timeout librdkafka resumes a call that is made again. So a client
of a dead cluster can be interrupted.

When a commit was certainly not done: librdkafka sends EndTxn only after every record of the
transaction was delivered (rd_kafka_commit_transaction flushes first and turns a failed delivery
into an abortable error). So a failed commit of a transaction with a failed delivery was never
requested. Any other failed commit may have been done, with the answer lost: info. That includes
librdkafka's "fenced", because the answer to the first EndTxn may have been lost before the fence
was noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from linkflap.harness.model.clock import now
from linkflap.harness.model.history import OutcomeName
from linkflap.harness.workloads.client import SLICE
from linkflap.harness.workloads.in_flight import InvokedOperation
from linkflap.harness.workloads.incarnation import Incarnation
from linkflap.harness.workloads.librdkafka import describe


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """How a call ended; `usable`: the incarnation can begin another transaction."""

    outcome: OutcomeName
    usable: bool
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The last answer of a sliced call: done, or the error that ended it; `resumed` when a slice
    had timed out before."""

    done: bool
    error: KafkaError | None = None
    text: str = ""


def _call(call: Callable[[float], None], given_up: Callable[[], bool], within: float) -> _Answer:
    """Calls in slices until done, a final error, `within` seconds have passed, or `given_up()`."""
    deadline = now() + int(within * 1e9)
    while True:
        try:
            call(SLICE)
        except KafkaException as error:
            cause = error.args[0]
            if not cause.retriable() or now() >= deadline or given_up():
                return _Answer(done=False, error=cause, text=describe(error))
        else:
            return _Answer(done=True)


def initialise(incarnation: Incarnation, given_up: Callable[[], bool], *, within: float) -> CallEnd:
    """InitProducerId with the transactional id: ends what an earlier incarnation left open, and
    fences it."""
    answer = _call(incarnation.producer.init_transactions, given_up, within)
    return CallEnd(outcome="ok" if answer.done else "info", usable=answer.done, error=answer.text)


def commit(
    incarnation: Incarnation,
    flight: InvokedOperation,
    given_up: Callable[[], bool],
    *,
    within: float,
) -> CallEnd:
    """Commits; after an abortable error it aborts, so that the incarnation can continue."""
    flight.ended_at = now()
    answer = _call(incarnation.producer.commit_transaction, given_up, within)
    if answer.done:
        return CallEnd(outcome="ok", usable=True)
    never_asked = flight.failed > 0 and answer.error is not None and not answer.error.retriable()
    outcome: OutcomeName = "fail" if never_asked else "info"
    if answer.error is None or answer.error.fatal() or not answer.error.txn_requires_abort():
        return CallEnd(outcome=outcome, usable=False, error=answer.text)
    aborted = _call(incarnation.producer.abort_transaction, given_up, within)
    return CallEnd(outcome=outcome, usable=aborted.done, error=answer.text)


def abort(
    incarnation: Incarnation,
    flight: InvokedOperation,
    given_up: Callable[[], bool],
    *,
    within: float,
) -> CallEnd:
    """Aborts; from here on the operation's ending is abort, also where a commit was planned."""
    flight.ended_at = now()
    flight.ending = "abort"
    answer = _call(incarnation.producer.abort_transaction, given_up, within)
    return CallEnd(outcome="ok" if answer.done else "info", usable=answer.done, error=answer.text)
