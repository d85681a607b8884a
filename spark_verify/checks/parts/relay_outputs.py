"""Compares the outputs of a relay with its inputs: lost ones, and repeated ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.checks.parts.logs import among, locate, runs
from linkflap.spark_verify.facts.view import Ints

Key = tuple[str, str, int, str]
"""A place, and a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Outputs of one input partition on one cluster, and what its transactions there committed, as
    columns."""

    parts: Sequence[Mapping[str, Any]] = ()
    torn: bool = False

    def of(self, name: str) -> Ints:
        """One column: input, uid, output; came, payload ids that came over a link; position,
        process, number, returned."""
        if len(self.parts) == 1:
            return np.asarray(self.parts[0][name], np.int64)
        return np.concatenate([np.zeros(0, np.int64), *(each[name] for each in self.parts)])


def expected_outputs(key: Key, input_log: Mapping[str, Any], made: Made) -> Iterator[Found]:
    """What the relay's own cluster owes: one output for each input that was passed, of records that
    are there."""
    offsets, uids, used = input_log["offsets"], input_log["uids"], made.of("input")
    yield from _made_again(key, made)
    at = locate(offsets, used)
    strange = (
        (at < 0) | (uids[at] != made.of("uid")) if len(offsets) else np.ones(len(used), np.bool_)
    )
    # What retention has deleted was there, and so was what the cleaner took.
    strange &= (used >= input_log["floor"]) & ((used >= input_log["compacted"]) | (at >= 0))
    for row in np.flatnonzero(strange).tolist():
        output, uid = int(made.of("output")[row]), int(made.of("uid")[row])
        yield _found_at(key, "output-without-input", int(used[row]), output=output, uid=uid)
    passed, by = _passed_to(input_log, made)
    due = (offsets >= input_log["start"]) & (offsets < passed) & (locate(used, offsets) < 0)
    yield from _lost_outputs(
        key, offsets[due], uids[due], began_at=input_log["start"], group_at=passed, by=by
    )
    yield from _offsets_behind(key, input_log, made)


def _made_again(key: Key, made: Made) -> Iterator[Found]:
    """Every output of an input that has another before it."""
    used, used_uids, outputs = (made.of(name) for name in ("input", "uid", "output"))
    order = np.argsort(used, kind="stable")
    ordered = used[order]
    for index in (np.flatnonzero(ordered[1:] == ordered[:-1]) + 1).tolist():
        first, after = (
            int(np.searchsorted(ordered, ordered[index], side=side)) for side in ("left", "right")
        )
        both = sorted(outputs[order[first:after]].tolist())
        yield _found_at(
            key,
            "output-duplicated",
            int(ordered[index]),
            outputs=both,
            uid=int(used_uids[order[index]]),
        )


def _passed_to(input_log: Mapping[str, Any], made: Made) -> tuple[int, str]:
    """How far the group got, and what says so."""
    claimed, sampled = (
        int(values.max(initial=-1)) for values in (made.of("position"), input_log["sampled"])
    )
    return (
        (claimed, "a committed transaction")
        if claimed >= sampled
        else (sampled, "the group's sampled offset")
    )


def _lost_outputs(key: Key, offsets: Ints, uids: Ints, **evidence: object) -> Iterator[Found]:
    for first, after in runs(offsets, uids):
        yield _found_at(
            key,
            "input-lost",
            int(offsets[first]),
            records=after - first,
            uid=int(uids[first]),
            **evidence,
        )


def _offsets_behind(key: Key, input_log: Mapping[str, Any], made: Made) -> Iterator[Found]:
    """Sampled offsets below what a transaction had committed that its producer had followed by
    another before."""
    position, process, number, returned = (
        made.of(name) for name in ("position", "process", "number", "returned")
    )
    order = np.lexsort((number, process))
    order = order[returned[order] >= 0]
    followed = np.flatnonzero(process[order][1:] == process[order][:-1])
    over, settled = returned[order][followed + 1], position[order][followed]
    over, settled = np.sort(over), np.maximum.accumulate(settled[np.argsort(over)])
    before = np.searchsorted(over, input_log["times"])
    least = np.concatenate(([-1], settled))[before]
    sampled, disturbed = input_log["sampled"], input_log["times"] >= input_log["disturbed"]
    left = np.concatenate((position, sampled[~disturbed], [input_log["start"]]))
    # A coordinator that reloads its partition may answer with a commit that the group had left
    # (KAFKA-15910).
    behind = (before > 0) & (sampled < least) & ~(disturbed & among(sampled, left))
    for row in np.flatnonzero(behind).tolist():
        yield _found_at(
            key,
            "offset-behind",
            int(input_log["sampled"][row]),
            committed=int(least[row]),
            time=int(input_log["times"][row]),
        )


def over_a_failover(
    key: Key,
    input_log: Mapping[str, Any],
    inputs: Mapping[Key, Mapping[str, Any]],
    outputs: Mapping[Key, Made],
) -> Iterator[Found]:
    """What the failover to this cluster cost: outputs that were made again, and outputs that did
    not arrive."""
    there = (*key[:3], str(input_log["source"]))
    before, made, theirs = inputs.get(there), outputs.get(key, Made()), outputs.get(there, Made())
    if before is None or theirs.torn:
        return
    offsets, uids = input_log["offsets"], input_log["uids"]
    mirrored, arrived = offsets < input_log["promoted"], among(uids, made.of("came"))
    # By offset: a mirror may have written an input twice, of which the group here had only the
    # second before it.
    again = mirrored & arrived & among(offsets, made.of("input"))
    shared = {"failover": input_log["kind"], "source": there[3], "began_at": input_log["start"]}
    left = mirrored & (offsets >= input_log["start"])
    # Nothing explains an output of what is below where the group began.
    for rows, bound in ((again & left, int(left.sum())), (again & ~left, 0)):
        if rows.any():
            yield counted(
                key, "output-repeated-by-failover", offsets[rows], uids[rows], bound=bound, **shared
            )
    gone = mirrored & (offsets < input_log["start"]) & ~arrived & ~among(uids, made.of("uid"))
    at = locate(before["uids"], uids)
    asked = before["offsets"][at] >= before["start"] if len(before["offsets"]) else gone
    done = among(uids, theirs.of("uid"))
    lost = gone & done
    if lost.any():
        yield counted(key, "output-lost-by-failover", offsets[lost], uids[lost], **shared)
    never = gone & ~done & (at >= 0) & asked
    yield from _lost_outputs(
        key, offsets[never], uids[never], by="where the group began after the failover", **shared
    )


def counted(key: Key, kind: str, offsets: Ints, uids: Ints, **evidence: object) -> Found:
    return _found_at(key, kind, int(offsets[0]), records=len(offsets), uid=int(uids[0]), **evidence)


def _found_at(key: Key, kind: str, offset: int, **evidence: object) -> Found:
    return Found(kind=kind, cluster=key[3], offset=offset, evidence={"group": key[0], **evidence})
