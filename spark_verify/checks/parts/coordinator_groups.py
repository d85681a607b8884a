"""Compares observations of groups with their coordinators' records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np

from linkflap.spark_verify.checks.base import Combined, Found, PartialFinding


def _written(
    commits: Sequence[PartialFinding],
) -> Mapping[tuple[str, str, int], list[tuple[int, bool]]]:
    """(group, topic, partition) -> its commits in the log: the offset, and whether the coordinator
    had reloaded the partition."""
    written: dict[tuple[str, str, int], list[tuple[int, bool]]] = defaultdict(list)
    for partial in commits:
        keys = [tuple(key) for key in partial.data["keys"]]  # type: ignore[attr-defined]
        for key, committed, reloaded in rows_of(partial.data["commits"], 3):
            written[keys[key]].append((committed, bool(reloaded)))
    return written


def _pending(commits: Sequence[PartialFinding]) -> Mapping[tuple[str, str, int], set[int]]:
    """(group, topic, partition) -> what open transactions commit: it may have been acknowledged,
    but no reader was given it."""
    pending: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for partial in commits:
        keys = [tuple(key) for key in partial.data["keys"]]  # type: ignore[attr-defined]
        for key, committed in rows_of(partial.data["pending"], 2):
            pending[keys[key]].add(committed)
    return pending


def _has_all(commits: Sequence[PartialFinding]) -> bool:
    """Whether all that coordinators ever wrote of groups is there."""
    return bool(commits) and all(
        partial.data["sound"] and partial.data["begins"] == 0 for partial in commits
    )


def groups_seen(partials: Sequence[PartialFinding]) -> Iterator[Combined]:
    """What was seen of groups, against what their coordinators wrote."""
    commits = of_cluster(partials, "commits")
    if not _has_all(commits):
        return
    written, pending = _written(commits), _pending(commits)
    for partial in of_cluster(partials, "seen"):
        names: Sequence[str] = partial.data["groups"]  # type: ignore[assignment]
        sampled, acknowledged = (
            rows_of(partial.data["sampled"], 3),
            rows_of(partial.data["acknowledged"], 2),
        )
        for number, group in enumerate(names):
            log = written.get((group, partial.topic, partial.partition), [])
            seen = [
                (offset, bool(disturbed)) for which, offset, disturbed in sampled if which == number
            ]
            lost = _not_in(
                log, [next(same) for _, same in groupby(seen, itemgetter(0))], how="sampled"
            )
            there = {committed for committed, _ in log} | pending.get(
                (group, partial.topic, partial.partition), set()
            )
            lost = lost or _absent(
                there, [offset for which, offset in acknowledged if which == number]
            )
            if lost is not None:
                evidence = {"group": group, "seen": lost[1], "commits_in_the_log": len(log)}
                found = Found(
                    kind="commit-missing",
                    cluster=partial.cluster,
                    offset=lost[0],
                    evidence=evidence,
                )
                yield Combined(found=found, topic=partial.topic, partition=partial.partition)


def _not_in(
    log: Sequence[tuple[int, bool]], seen: Sequence[tuple[int, bool]], *, how: str
) -> tuple[int, str] | None:
    """The first observation that is not in the log behind the previous one.

    It may be earlier in the log once the coordinator has reloaded it.
    """
    commits, index = [committed for committed, _ in log], 0
    for offset, disturbed in seen:
        try:
            index = commits.index(offset, index)
        except ValueError:
            if not commits or not (disturbed or log[index][1]) or offset not in commits:
                return offset, how
            index = commits.index(offset)
    return None


def _absent(there: Collection[int], acknowledged: Sequence[int]) -> tuple[int, str] | None:
    return next(((offset, "acknowledged") for offset in acknowledged if offset not in there), None)


def of_cluster(partials: Sequence[PartialFinding], what: str) -> list[PartialFinding]:
    return [partial for partial in partials if partial.data["what"] == what]


def rows_of(values: object, width: int) -> list[list[int]]:
    rows: list[list[int]] = np.asarray(values, np.int64).reshape(-1, width).tolist()
    return rows
