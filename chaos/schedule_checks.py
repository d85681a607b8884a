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
    """Raises InputError, with the name of the fault, if a topology cannot play the schedule."""
    ids = [spec.id for spec in schedule]
    for spec in schedule:
        if ids.count(spec.id) > 1:
            raise InputError(
                f"two faults of the schedule have the id {spec.id!r}; give each its own id"
            )
        if spec.fault not in FAULTS:
            raise InputError(
                f"fault {spec.id!r} has the unknown kind {spec.fault!r}"
                f"{nearest(spec.fault, FAULTS)}; known: {', '.join(sorted(FAULTS))}"
            )
        if unknown(condition(spec.when)) is not None:
            raise InputError(
                f"fault {spec.id!r} waits for an unknown trigger: {spec.when!r}; known: "
                f"{', '.join(known())}"
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
    """Raises InputError, with the name of the fault, if a runtime cannot play the schedule."""
    for spec in schedule:
        if spec.fault in IN_CONTAINERS and runtime != "docker":
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) needs containers, and the runtime {runtime} has "
                "none; run it with --runtime docker"
            )
        if spec.fault in IN_PROCESSES and runtime != "process":
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) needs brokers that are processes, and the "
                f"runtime {runtime} has containers; run it with --runtime process"
            )
        if spec.fault in BY_FAKETIME:
            faketime.library()


def check_losses(schedule: Sequence[FaultSpec], guarantee: Guarantee) -> None:
    """Raises InputError for an unclean election with a mirror that does not keep offsets: the lost
    records could not be found among the mirror's copies."""
    for spec in schedule:
        if spec.fault == UNCLEAN and not guarantee.offsets_kept:
            raise InputError(
                f"fault {spec.id!r} ({spec.fault}) does not apply: this mirror does not keep "
                "offsets, so copies of records that the source has lost cannot be found; use a "
                "mirror that keeps offsets, for example --mirror shadow"
            )


def _before(spec: FaultSpec, schedule: Sequence[FaultSpec]) -> list[FaultSpec]:
    """The faults that a fault follows, directly or through others, nearest first. Raises InputError
    for an unknown fault or a cycle."""
    known = {other.id: other for other in schedule}
    found: list[FaultSpec] = []
    asked = [spec]
    while asked:
        one = asked.pop(0)
        for name in condition(one.when).faults:
            if name not in known:
                raise InputError(
                    f"fault {spec.id!r} follows unknown fault {name!r}; known: {', '.join(known)}"
                )
            if name == spec.id:
                raise InputError(
                    f"fault {spec.id!r} follows itself through {one.id!r}; let one of them start "
                    "without waiting for the other"
                )
            if known[name] not in found:
                found.append(known[name])
                asked.append(known[name])
    return found


def _check_nothing_revived(
    failover: FaultSpec, schedule: Sequence[FaultSpec], before: Mapping[str, Sequence[FaultSpec]]
) -> None:
    """Refuses a fault whose heal would restart the mirror that a failover has ended, or a broker of
    the source that it has killed. Raises InputError.

    Such a fault is allowed after the mirror was reversed.
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
            when = f" at {spec.at + spec.duration:g} s" if timed else ""
            raise InputError(
                f"fault {spec.id!r} would start {spec.target} again{when}, after failover "
                f"{failover.id!r} {f'at {failover.at:g} s ' if timed else ''}has ended it; let the "
                "fault end before the failover"
            )


def _heals_what_ended(spec: FaultSpec, failover: FaultSpec) -> bool:
    """Whether the heal of a fault starts the mirror that the failover ends, or a broker of the
    source that the failover kills."""
    mirror = spec.fault == KILL and spec.target == failover.target
    broker = failover.name.forced and spec.on.cluster == failover.on.source
    return mirror or broker


def _reversed_between(failover: FaultSpec, before: Sequence[FaultSpec]) -> bool:
    """Whether `before` (nearest first) has this failover, and after it a reversal of its mirror."""
    if failover not in before:
        return False
    return any(
        other.fault == REVERSE and other.target == failover.target
        for other in before[: before.index(failover)]
    )


def _check_reversed(spec: FaultSpec, before: Sequence[FaultSpec], topology: Topology) -> None:
    """Refuses a failover or kill of a mirror that has ended, and a reversal of a mirror that has
    not failed over. Raises InputError."""
    turned = spec.on.back
    alive, over = any(link.name == spec.target for link in topology.links), False
    for other in reversed(before):
        if other.target == spec.target and (other.name.reverses or other.name.fails_over):
            alive, over = False, other.fault != REVERSE
        elif other.target == turned and other.fault == REVERSE:
            alive, over = True, False
    if spec.fault == REVERSE and not over:
        raise InputError(
            f"fault {spec.id!r} reverses the mirror of {spec.target}, which has not failed over at "
            "that time; let it follow a failover"
        )
    if spec.fault != REVERSE and not alive:
        does = "kills the mirror of" if spec.fault == KILL else "fails over"
        raise InputError(
            f"fault {spec.id!r} {does} {spec.target}, which has no mirror at that time; let it "
            f"follow a {REVERSE} of {turned}"
        )
