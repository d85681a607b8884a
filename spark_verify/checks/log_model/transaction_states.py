"""The order of the states of a transactional id in `__transaction_state` (KIP-98, KIP-360,
KIP-890).

A coordinator writes a state before it acts on it, and a new coordinator begins with the last state
in the log. So each record of an id follows from the previous one: by state, producer id and epoch,
partitions, timeout and times. Its update time is not before that of the previous record, and not
after the record was written, as far as the clocks of the brokers agree.

    Empty            the first of an id, with epoch 0; else the next epoch, or the same one to a
                     producer that asks again; or a new producer id, once the epochs are used up
    Ongoing          the same producer, the partitions so far and more
    PrepareCommit    of an ongoing transaction, with its partitions. With transactions v2 in the
                     next epoch, and once the epochs are used up with the producer id that is next
    PrepareAbort     the same. Where the coordinator ended the transaction (its timeout passed, or
                     a successor came), in the next epoch with v1 too. With v2 a producer may abort
                     when nothing is ongoing
    CompleteCommit   of PrepareCommit, in its epoch, or epoch 0 of the producer id that is next
    CompleteAbort    of PrepareAbort, the same
    no value         of an id without a transaction, unused for transactional.id.expiration.ms

States that are only in a coordinator's memory (PrepareEpochFence, Dead) are in no log. A cleaner
leaves the last record of each id below its checkpoint, so only the records above that are compared
with the one before them.

A record that was appended and not replicated in time does not count: its coordinator continues from
the previous state. That happens only once a fault of the cluster's brokers has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from linkflap.harness.log.coordinators import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    FORGOTTEN,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from linkflap.spark_verify.checks.base import Finding, Found, Unjudged, grouped
from linkflap.spark_verify.facts.eras import on_cluster, skew
from linkflap.spark_verify.facts.view import PartitionView, Replica

IMPOSSIBLE: Final = "impossible-state"
NAMES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)
_ENDED: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
_PREVIOUS: Final[Mapping[int, frozenset[int]]] = {
    EMPTY: _ENDED,
    ONGOING: _ENDED | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: frozenset({ONGOING}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    FORGOTTEN: _ENDED,
}
_USED_UP: Final = 2**15 - 2
"""The last epoch that a producer gets; the coordinator keeps the next one for itself."""
_RAISED_TWICE: Final = "4.0.0"
"""The release whose coordinator raises the epoch twice when it ends a transaction with v2
(KAFKA-19367)."""
_SETTLED: Final = 10 * 10**9
"""How long after a fault of brokers appends may still fail, in nanoseconds: more than three times
replica.lag.time.max.ms (3 s here)."""
_EXPIRATION: Final = 7 * 24 * 60 * 60 * 1000
_MAX_TIMEOUT: Final = 15 * 60 * 1000


def name_of(state: int) -> str:
    """The state, in Kafka's words."""
    if state == FORGOTTEN:
        return "no value"
    return NAMES[state] if 0 <= state < len(NAMES) else f"state {state}"


def setting(view: PartitionView, cluster: str, name: str, default: int) -> int:
    """A setting of a cluster's brokers, as the run recorded it, else Kafka's default."""
    return int(view.brokers_config(cluster).get(name, default))


def max_timeout(view: PartitionView, cluster: str) -> int:
    """The longest transaction that a cluster's brokers allow, in milliseconds."""
    return setting(view, cluster, "transaction.max.timeout.ms", _MAX_TIMEOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """The settings on which the rules depend. `expiration` and `longest` are milliseconds, None
    where the brokers' settings are not known; `raised_twice`: they may be of 4.0.0; `skew`: by how
    many milliseconds their clocks may differ, one ahead and one behind."""

    expiration: int | None
    longest: int | None
    raised_twice: bool
    skew: int | None


def impossible_states(view: PartitionView, replica: Replica, begins: int) -> Iterator[Finding]:
    """Records of `__transaction_state` that do not follow from the one before them of their id."""
    rules = _rules(view, replica.cluster)
    epochs, bases = replica.batches.leader_epoch, replica.batches.base_offset
    for states in _by_id(replica).values():
        rows = np.searchsorted(bases, [s.offset for s in states], side="right") - 1
        leaders = epochs[rows].tolist()
        for number, state in enumerate(states):
            before = states[number - 1] if number else None
            if state.offset < begins or (before is None and replica.log_start > 0):
                continue
            wrong = _wrong(before, state, rules)
            if not wrong:
                continue
            since = _gone_back(states[: number + 1], leaders, rules)
            if since is None or not _may_fail(view, replica.cluster, since, state):
                yield _found(replica, before, state, wrong)
            elif not view.recorded:
                yield _if_an_append_failed(view, replica, state)


def _by_id(replica: Replica) -> Mapping[str, Sequence[TransactionState]]:
    """The states of each transactional id, in the order of the log."""
    states = (entry for entry in replica.entries if isinstance(entry, TransactionState))
    return grouped(states, lambda state: state.transactional_id)


def _if_an_append_failed(
    view: PartitionView, replica: Replica, state: TransactionState
) -> Unjudged:
    where = f"{view.tp} on {replica.cluster}"
    return Unjudged(
        f"{name_of(state.state)} of {state.transactional_id} at offset {state.offset} "
        f"of {where} follows only if the append before it failed, and no history "
        "says whether brokers were broken"
    )


def _rules(view: PartitionView, cluster: str) -> _Rules:
    kafka = next((c.kafka for c in view.topology.clusters if c.name == cluster), "")
    released = bool(kafka) and all(part.isdigit() for part in kafka.split("."))
    return _Rules(
        expiration=setting(view, cluster, "transactional.id.expiration.ms", _EXPIRATION)
        if view.recorded
        else None,
        longest=max_timeout(view, cluster) if view.recorded else None,
        raised_twice=not view.recorded or not released or kafka == _RAISED_TWICE,
        skew=2 * skew(view.windows, cluster) if view.recorded else None,
    )


def _gone_back(
    states: Sequence[TransactionState], leaders: Sequence[int], rules: _Rules
) -> TransactionState | None:
    """The earliest record whose append must have failed, together with all later ones of the same
    coordinator, so that the last record is legal; None if it never is."""
    last = len(states) - 1
    for number in range(last - 1, -1, -1):
        if leaders[number] != leaders[last]:
            return None
        earlier = states[number - 1] if number else None
        if not _wrong(earlier, states[last], rules):
            return states[number]
    return None


def _may_fail(
    view: PartitionView, cluster: str, since: TransactionState, state: TransactionState
) -> bool:
    """Whether appends of a cluster's coordinator may have failed at that time: a fault of its
    brokers had begun when the coordinator went on."""
    if not view.recorded:
        return True
    ahead = skew(view.windows, cluster)
    begin, end = (since.updated - ahead) * 1_000_000, (state.written + ahead) * 1_000_000
    forced = [w for w in view.windows if w.name.forced and w.on.source == cluster]
    return any(
        window.start <= end and begin - _SETTLED <= window.end
        for window in (*on_cluster(view.windows, cluster), *forced)
    )


def _found(
    replica: Replica, before: TransactionState | None, state: TransactionState, wrong: str
) -> Found:
    evidence: dict[str, object] = {
        "transactional_id": state.transactional_id,
        "state": name_of(state.state),
        "follows": name_of(before.state) if before else "nothing",
        "wrong": wrong,
    }
    if before is not None:
        evidence["follows_at"] = before.offset
    return Found.at(IMPOSSIBLE, replica.cluster, state.offset, **evidence)


def _wrong(before: TransactionState | None, state: TransactionState, rules: _Rules) -> str:
    """Why a record does not follow from the one before it of its id; empty if it does."""
    if before is None or before.state == FORGOTTEN:
        return _first(state, rules)
    allowed = _PREVIOUS.get(state.state)
    if allowed is None:
        return f"no coordinator writes {name_of(state.state)}"
    if state.state == PREPARE_ABORT and state.version >= 2:
        allowed |= _ENDED
    if before.state not in allowed:
        return f"{name_of(state.state)} cannot follow {name_of(before.state)}"
    reasons = (rule(before, state, rules) for rule in _RULES[state.state])
    return next((reason for reason in reasons if reason), "")


def _first(state: TransactionState, rules: _Rules) -> str:
    if state.state != EMPTY:
        return f"{name_of(state.state)} cannot be the first state of an id"
    if state.producer_epoch != 0:
        return f"the first epoch of a producer id is 0, not {state.producer_epoch}"
    if state.previous_id not in (-1, state.producer_id):
        return f"there was no producer id {state.previous_id} before"
    if reason := _next_id(state, state, rules):
        return reason
    return _nothing_begun(state, state, rules) or _in_time(state, state, rules)


Rule = Callable[[TransactionState, TransactionState, _Rules], str]
"""(record before, record, settings) -> what is wrong, or nothing."""


def _producer(before: TransactionState, state: TransactionState, rules: _Rules) -> str:
    """The producer id and epoch that may come next."""
    given = state.producer_id, state.producer_epoch
    if state.previous_id not in (-1, before.producer_id):
        return f"the producer id before was {before.producer_id}, not {state.previous_id}"
    if state.state == EMPTY and before.producer_epoch >= _USED_UP:
        fresh = state.producer_id != before.producer_id and state.producer_epoch == 0
        return "" if fresh else _not_next(given, "epoch 0 of a new producer id")
    if state.state in (COMPLETE_COMMIT, COMPLETE_ABORT) and before.next_id >= 0:
        following = f"epoch 0 of producer id {before.next_id}"
        return "" if given == (before.next_id, 0) else _not_next(given, following)
    epochs = [before.producer_epoch + step for step in _steps(before, state, rules)]
    if state.producer_id == before.producer_id and state.producer_epoch in epochs:
        return ""
    words = " or ".join(str(epoch) for epoch in epochs)
    return _not_next(given, f"epoch {words} of producer id {before.producer_id}")


def _not_next(given: tuple[int, int], following: str) -> str:
    return f"epoch {given[1]} of producer id {given[0]} where {following} is next"


def _steps(before: TransactionState, state: TransactionState, rules: _Rules) -> Sequence[int]:
    """By how much the epoch may rise."""
    if state.state == EMPTY:
        return 0, 1
    if state.state not in (PREPARE_COMMIT, PREPARE_ABORT):
        return (0,)
    abort = state.state == PREPARE_ABORT
    if state.version < 2:
        return (0, 1) if abort else (0,)
    if abort and before.producer_epoch > _USED_UP:
        return (0,)
    return (1, 2) if abort and rules.raised_twice else (1,)


def _next_id(before: TransactionState, state: TransactionState, _: _Rules) -> str:
    """Only a producer whose epochs are used up is given another producer id, when its transaction
    ends (v2)."""
    if state.next_id >= 0 and (state.version < 2 or before.producer_epoch < _USED_UP):
        return f"producer id {state.next_id} cannot be next here"
    return ""


def _nothing_begun(_: TransactionState, state: TransactionState, rules: _Rules) -> str:
    if state.partitions or state.started != -1:
        return "it has a transaction, and none has begun"
    if rules.longest is not None and state.timeout > rules.longest:
        return f"its timeout is {state.timeout} ms, and transaction.max.timeout.ms {rules.longest}"
    return ""


def _timeout(before: TransactionState, state: TransactionState, _: _Rules) -> str:
    if state.timeout == before.timeout:
        return ""
    return f"the timeout changed from {before.timeout} to {state.timeout} ms"


def _same_version(before: TransactionState, state: TransactionState, _: _Rules) -> str:
    if state.version == before.version:
        return ""
    return f"the transaction version changed from {before.version} to {state.version}"


def _not_older(before: TransactionState, state: TransactionState, _: _Rules) -> str:
    """A transaction that a client began with v2 ends with v2, by the client or its coordinator."""
    if before.state != ONGOING or state.version >= 2 or before.version < 2:
        return ""
    return f"it began with transaction version {before.version} and ends with {state.version}"


def _more_partitions(before: TransactionState, state: TransactionState, _: _Rules) -> str:
    lacking = set(before.partitions) - set(state.partitions) if before.state == ONGOING else ()
    return _listed("it lost", lacking)


def _same_partitions(before: TransactionState, state: TransactionState, _: _Rules) -> str:
    mine, theirs = set(state.partitions), set(before.partitions)
    return _listed("it lost", theirs - mine) or _listed("it gained", mine - theirs)


def _no_partitions(_: TransactionState, state: TransactionState, __: _Rules) -> str:
    return _listed("it still has", state.partitions)


def _listed(what: str, partitions: Sequence[tuple[str, int]] | set[tuple[str, int]]) -> str:
    return f"{what} {', '.join(f'{t}-{n}' for t, n in sorted(partitions))}" if partitions else ""


def _started(before: TransactionState, state: TransactionState, _: _Rules) -> str:
    """A transaction keeps the time at which it started: that of the record that began it."""
    begins = before.state in _ENDED
    expected = state.updated if begins else before.started
    if state.started == expected:
        return ""
    return f"its transaction started at {expected}, not {state.started} (ms)"


def _in_time(before: TransactionState, state: TransactionState, rules: _Rules) -> str:
    """A state is updated no earlier than the one before it, and no later than it is written."""
    if rules.skew is None:
        return ""
    if state.updated < before.updated - rules.skew:
        return (
            f"it was updated at {state.updated}, and the state before it at {before.updated} (ms)"
        )
    if state.updated > state.written + rules.skew:
        return f"it was updated at {state.updated}, and written at {state.written} (ms)"
    return ""


def _expired(before: TransactionState, state: TransactionState, rules: _Rules) -> str:
    unused = state.written - before.updated
    if rules.expiration is None or unused + (rules.skew or 0) >= rules.expiration:
        return ""
    return f"the id was unused for {unused} ms of {rules.expiration}"


_PREPARED: Final = (_producer, _next_id, _not_older, _timeout, _same_partitions, _started, _in_time)
_COMPLETE: Final = (
    _producer,
    _next_id,
    _timeout,
    _same_version,
    _no_partitions,
    _started,
    _in_time,
)
_RULES: Final[Mapping[int, tuple[Rule, ...]]] = {
    EMPTY: (_producer, _next_id, _nothing_begun, _in_time),
    ONGOING: (_producer, _next_id, _timeout, _more_partitions, _started, _in_time),
    PREPARE_COMMIT: _PREPARED,
    PREPARE_ABORT: _PREPARED,
    COMPLETE_COMMIT: _COMPLETE,
    COMPLETE_ABORT: _COMPLETE,
    FORGOTTEN: (_expired,),
}
