"""Checks whether a schedule can be played on a topology and a runtime, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linkflap.chaos.faults import (
    BY_FAKETIME,
    FAULTS,
    IN_CONTAINERS,
    IN_PROCESSES,
    OF_CLIENTS,
    check_options,
)
from linkflap.chaos.triggers import condition, known, unknown
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.faults import KILL, REVERSE, UNCLEAN
from linkflap.harness.model.guarantee import Guarantee
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.spelling import nearest
from linkflap.harness.model.topology import Topology
from linkflap.harness.runtimes import faketime


def check(schedule: Sequence[FaultSpec], topology: Topology) -> None:
    """Raises InputError, naming the fault, when a schedule cannot be played on a topology."""
    ids = [spec.id for spec in schedule]
    for spec in schedule:
        if ids.count(spec.id) > 1:
            raise InputError(
                f"two faults of the schedule are called {spec.id!r}; give each an id of its own"
            )
        if spec.fault not in FAULTS:
            raise InputError(
                f"fault {spec.id!r} is of unknown kind {spec.fault!r}{nearest(spec.fault, FAULTS)};"
                f" known are {', '.join(sorted(FAULTS))}"
            )
        if unknown(condition(spec.when)) is not None:
            raise InputError(
                f"fault {spec.id!r} waits for unknown {spec.when!r}; known are {', '.join(known())}"
            )
        reason = FAULTS[spec.fault].applies_to(spec.target, topology)
        if reason:
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) cannot be applied to {spec.target!r}: {reason}"
            )
        check_options(spec)
    before = {spec.id: _before(spec, schedule) for spec in schedule}
    for spec in schedule:
        if spec.name.fails_over:
            _check_nothing_revived(spec, schedule, before)
        if spec.name.fails_over or spec.fault in (REVERSE, KILL):
            _check_reversed(spec, before[spec.id], topology)


def check_runtime(schedule: Sequence[FaultSpec], runtime: str) -> None:
    """Raises InputError, naming the fault, when a schedule cannot be played on a runtime."""
    for spec in schedule:
        if spec.fault in IN_CONTAINERS and runtime != "docker":
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) is done to containers, and the runtime {runtime}"
                " has none; run it with --runtime docker"
            )
        if spec.fault in IN_PROCESSES and runtime != "process":
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) is done to processes, and the runtime {runtime} "
                "has containers; run it with --runtime process"
            )
        if spec.fault in BY_FAKETIME:
            faketime.library()


def check_losses(schedule: Sequence[FaultSpec], guarantee: Guarantee) -> None:
    """Raises InputError, naming the fault, when nothing could say what of its losses a mirror may
    still have."""
    for spec in schedule:
        if spec.fault == UNCLEAN and not guarantee.offsets_kept:
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) does not apply: this mirror gives records other "
                "offsets, so that nothing says which of its copies the source has lost; use one "
                "that keeps offsets, for example --mirror shadow"
            )


def _before(spec: FaultSpec, schedule: Sequence[FaultSpec]) -> list[FaultSpec]:
    """The faults that a fault follows, directly or by others, the nearest first. Raises
    InputError."""
    known = {other.id: other for other in schedule}
    found: list[FaultSpec] = []
    asked = [spec]
    while asked:
        one = asked.pop(0)
        for name in condition(one.when).faults:
            if name not in known:
                raise InputError(
                    f"fault {spec.id!r} follows unknown fault {name!r}; known are "
                    f"{', '.join(known)}"
                )
            if name == spec.id:
                raise InputError(
                    f"fault {spec.id!r} follows itself, by way of {one.id!r}; let one of them start"
                    " at a time of its own"
                )
            if known[name] not in found:
                found.append(known[name])
                asked.append(known[name])
    return found


def _check_nothing_revived(
    failover: FaultSpec, schedule: Sequence[FaultSpec], before: Mapping[str, Sequence[FaultSpec]]
) -> None:
    """Refuses a fault whose heal would restart what a failover has ended: the mirror, or brokers of
    a dead source.

    It is allowed after that mirror was reversed.
    """
    for spec in (spec for spec in schedule if spec.fault not in OF_CLIENTS):
        if (
            not _heals_what_ended(spec, failover)
            or spec in before[failover.id]
            or _reversed_between(failover, before[spec.id])
        ):
            continue
        timed = not before[spec.id] and not before[failover.id]
        if not timed or spec.at + spec.duration > failover.at:
            ends = f"{spec.at + spec.duration:g} s" if timed else "a time of its own"
            raise InputError(
                f"fault {spec.id!r} would start {spec.target} again at {ends}, after failover "
                f"{failover.id!r} {f'at {failover.at:g} s ' if timed else ''}has ended it; let it "
                "end before"
            )


def _heals_what_ended(spec: FaultSpec, failover: FaultSpec) -> bool:
    """Whether the heal of a fault starts the mirror that a failover ends, or a broker of the source
    that it kills."""
    mirror = spec.fault == KILL and spec.target == failover.target
    broker = failover.name.forced and spec.on.cluster == failover.on.source
    return mirror or broker


def _reversed_between(failover: FaultSpec, before: Sequence[FaultSpec]) -> bool:
    """Whether among the faults before some other is this failover, and a reversal of its mirror
    after it."""
    if failover not in before:
        return False
    return any(
        other.fault == REVERSE and other.target == failover.target
        for other in before[: before.index(failover)]
    )


def _check_reversed(spec: FaultSpec, before: Sequence[FaultSpec], topology: Topology) -> None:
    """Refuses to fail over or kill a mirror that is gone, and to reverse one that has not failed
    over. Raises InputError."""
    turned = spec.on.back
    alive, over = any(link.name == spec.target for link in topology.links), False
    for other in reversed(before):
        if other.target == spec.target and (other.name.reverses or other.name.fails_over):
            alive, over = False, other.fault != REVERSE
        elif other.target == turned and other.fault == REVERSE:
            alive, over = True, False
    if spec.fault == REVERSE and not over:
        raise InputError(
            f"fault {spec.id!r} reverses the mirror of {spec.target}, which has not failed over "
            "then; let it follow a failover"
        )
    if spec.fault != REVERSE and not alive:
        does = "kills the mirror of" if spec.fault == KILL else "fails over"
        raise InputError(
            f"fault {spec.id!r} {does} {spec.target}, which nothing mirrors then; let it follow a "
            f"{REVERSE} of {turned}"
        )
