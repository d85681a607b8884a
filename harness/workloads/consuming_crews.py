"""Consumers of one workload: in a consumer group, with fixed partitions, or in a share group; and
how each kind is drained."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Final

from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.history import SHARE_LOCK_MS
from linkflap.harness.model.scenario import WorkloadSpec
from linkflap.harness.model.wait import until
from linkflap.harness.workloads.crew import Crew, Ends, WorkloadProgress
from linkflap.harness.workloads.members import Member
from linkflap.harness.workloads.readers import ReaderClient
from linkflap.harness.workloads.share_group import ShareClient
from linkflap.harness.workloads.worker import Worker

QUIET_FOR: Final = SHARE_LOCK_MS / 1000 + 5.0
"""Seconds within which records of a member that has ended are redelivered to others."""


class Readers(Crew):
    """Readers of one home's topics, in one isolation, on one cluster at a time."""

    def __init__(
        self,
        spec: WorkloadSpec,
        workers: Sequence[Worker],
        topics: Mapping[str, int],
        pattern: ReaderClient | ShareClient,
    ) -> None:
        super().__init__(spec, workers, topics)
        self._follows, self._group, self._isolation = (
            pattern.follows,
            pattern.group,
            pattern.isolation,
        )

    @property
    def follows(self) -> bool:
        return self._follows

    def progress(self) -> WorkloadProgress:
        counts = super().progress()
        read = sum(member.counts.read for member in self.members)
        committed = self._isolation == "read_committed"
        return counts + WorkloadProgress(
            read_committed=read * committed, read_uncommitted=read * (not committed)
        )

    def read_on(self, cluster: str) -> int | None:
        self.look()
        there = [member.counts.read for member in self.members if member.state.cluster == cluster]
        return sum(there) if there else None

    def drain(self, ends: Ends, *, within: float) -> None:
        """Reads on until the readers have reached every end in `ends` of their topics on their
        cluster: one reader of a group, or each reader with fixed partitions. Each reader that got
        there writes a row of kind drained, and one of kind error names ends that were not reached
        in time. Raises nothing, because the verdict judges that. If a reader is killed after it
        reached the ends and before it wrote that, its successor is waited for."""
        try:
            until(
                lambda: self._concluded(ends),
                within=within,
                what="readers to reach the ends and to record that",
            )
        except DeadlineExceeded:
            self._conclude(ends, self._missing(ends))

    def _concluded(self, ends: Ends) -> bool:
        """Once all readers are at the ends, makes them record that. Returns whether all have."""
        self.look()
        if not self._missing(ends):
            self._conclude(ends, {})
        return not any(self._undrained(member, ends) for member in self.members)

    def _conclude(self, ends: Ends, missing: Mapping[str, str]) -> None:
        for worker in self.workers:
            for member in worker.members:
                due = self._undrained(member, ends) if member.obeyed else {}
                reached = [tp for tp, end in due.items() if member.positions.get(tp, -1) >= end]
                if reached or member.name in missing:
                    worker.drained(member, reached=reached, missing=missing.get(member.name, ""))

    def _peers(self, member: Member) -> Sequence[Member]:
        """The readers that share a reader's partitions: the members of its group, or only
        itself."""
        return [m for m in self.members if m.cluster == member.cluster] if self._group else [member]

    def _undrained(self, member: Member, ends: Ends) -> dict[tuple[str, int], int]:
        """The ends that neither this reader nor its group has recorded as reached."""
        peers = self._peers(member)
        due = self._due(member, ends).items()
        return {tp: end for tp, end in due if all(peer.drained.get(tp, -1) < end for peer in peers)}

    def _due(self, member: Member, ends: Ends) -> dict[tuple[str, int], int]:
        return {tp: end for tp, end in ends.get(member.cluster, {}).items() if tp[0] in self.topics}

    def _missing(self, ends: Ends) -> dict[str, str]:
        """Reader -> the ends that it, or its group, has not reached."""
        missing: dict[str, str] = {}
        for member in self.members:
            positions = [peer.positions for peer in self._peers(member)]
            short = [
                f"{topic}-{partition} at {at} of {end}"
                for (topic, partition), end in self._undrained(member, ends).items()
                if (at := max(mine.get((topic, partition), -1) for mine in positions)) < end
            ]
            if short:
                missing[member.name] = ", ".join(short)
        return missing


class ShareGroup(Readers):
    """Members of a share group."""

    def drain(self, ends: Ends, *, within: float) -> None:
        """Reads on until the group is finished with every partition up to its end, or gets no more
        records. Then a member records how far the group's coordinator says that it is finished. A
        group need not finish the markers at the end of a log, so its end is not always reached.
        Waiting proves nothing: for the verdict, records beyond that start offset were not read to
        the end."""
        quiet = _Quiet()
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: self._over(ends, quiet),
                within=within,
                what="share groups to have nothing left",
            )
        for worker in self.workers:
            for member in worker.members:
                if due := self._due(member, ends):
                    worker.drained(member, reached=list(due), missing="")
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: self.look() >= 0 and self._settled(ends),
                within=within,
                what="share groups to record how far they are",
            )

    def _over(self, ends: Ends, quiet: _Quiet) -> bool:
        self.look()
        return (
            not self._missing(ends)
            or quiet.since(sum(member.counts.read for member in self.members)) > QUIET_FOR
        )

    def _settled(self, ends: Ends) -> bool:
        return all(
            member.drained.keys() >= self._due(member, ends).keys() for member in self.members
        )


class _Quiet:
    """How long a number has stayed the same."""

    def __init__(self) -> None:
        self._number, self._changed = -1, time.monotonic()

    def since(self, number: int) -> float:
        """Seconds since it changed."""
        if number != self._number:
            self._number, self._changed = number, time.monotonic()
        return time.monotonic() - self._changed
