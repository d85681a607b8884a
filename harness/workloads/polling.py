"""Records the polls, positions and errors of polling clients; the same error at most once a
second."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from linkflap.harness.model.clock import now
from linkflap.harness.model.history import Fetched, Isolation, Poll, PollKind
from linkflap.harness.model.topology import TopicPartition as Partition
from linkflap.harness.workloads.client import Client
from linkflap.harness.workloads.context import Context
from linkflap.harness.workloads.protocol import ClientState

ISOLATIONS: Final = ("read_committed", "read_uncommitted")
SAME_ERROR_EVERY: Final = int(1e9)


class PollingClient(Client):
    """A client whose history is its polls. `group` is its consumer group, empty for none."""

    def __init__(
        self, context: Context, name: str, cluster: str, *, group: str, follows: bool
    ) -> None:
        super().__init__(context, name, cluster)
        self.isolation: Isolation = (
            "read_committed"
            if context.choice("isolation", ISOLATIONS) == ISOLATIONS[0]
            else "read_uncommitted"
        )
        self.group, self.follows = group, follows
        self.positions: dict[Partition, int] = {}
        self._rows = context.writer.polls(name)
        self._process = self._looked_at = 0
        self._errors: dict[str, int] = {}
        self._drained: dict[Partition, int] = {}

    @abstractmethod
    def drained(self, partitions: Sequence[Partition]) -> None:
        """Records the positions of these partitions, now that the requested ends are reached."""

    def not_drained(self, missing: str) -> None:
        """Records the ends that were not reached in time."""
        self._write(now(), "error", error=f"not drained: {missing}")

    def state(self) -> ClientState:
        positions = tuple(
            (topic, partition, at) for (topic, partition), at in list(self.positions.items())
        )
        drained = tuple(
            (topic, partition, at) for (topic, partition), at in list(self._drained.items())
        )
        return msgspec.structs.replace(super().state(), positions=positions, drained=drained)

    def _error(self, invoked: int, text: str) -> None:
        """Records an error, but the same one at most once a second: a dead cluster causes one at
        every poll."""
        if invoked - self._errors.get(text, 0) >= SAME_ERROR_EVERY:
            self._errors[text] = invoked
            self.tally.errors += 1
            self._write(invoked, "error", error=text)

    def _write(
        self, invoked: int, kind: PollKind, rows: Iterable[Fetched] = (), error: str = ""
    ) -> None:
        self._rows.write(
            Poll(
                time=invoked,
                returned=now(),
                reader=self.name,
                process=self._process,
                cluster=self.cluster,
                isolation=self.isolation,
                kind=kind,
                group=self.group,
                fetched=tuple(rows),
                error=error,
            )
        )


def rows_at(positions: Mapping[Partition, int]) -> tuple[Fetched, ...]:
    """Positions as a poll's row has them, in order."""
    return tuple(
        Fetched(topic=t, partition=p, position=at) for (t, p), at in sorted(positions.items())
    )
