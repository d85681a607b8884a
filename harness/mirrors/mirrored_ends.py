"""The ends of mirrored partitions on a destination, and a wait until they stop moving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from confluent_kafka.admin import AdminClient

from linkflap.harness.mirrors.topics import ends_on
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredEnds:
    """Asks a destination about the topics of `homes`. `answers_within` is the timeout of each
    request, in seconds."""

    admin: AdminClient
    destination: str
    homes: tuple[str, ...]
    answers_within: float

    def at(self, which: Literal["stable", "high"] = "high") -> Mapping[Partition, int] | None:
        """Last stable offsets or high watermarks; None while the destination does not answer."""
        return ends_on(self.admin, self.homes, which, within=self.answers_within)

    def known(self, within: float) -> Mapping[Partition, int]:
        """High watermarks, once the destination answers. Raises DeadlineExceeded."""
        what = f"the ends of partitions on {self.destination}"

        def found() -> list[Mapping[Partition, int]]:
            return [] if (ends := self.at()) is None else [ends]

        return until(found, within=within, what=what)[0]

    def open(self) -> list[str] | None:
        """Partitions with an open transaction; None while the destination does not answer."""
        stable, high = self.at("stable"), self.at("high")
        if stable is None or high is None:
            return None
        return [
            f"{topic}-{partition}"
            for (topic, partition), end in high.items()
            if stable.get((topic, partition), end) < end
        ]

    def await_unchanged(self, within: float, *, closed: bool = False) -> None:
        """Returns when two consecutive answers are equal, because a broker's socket buffer may
        still have requests of a killed process. `closed`: also waits until no transaction is open.
        Raises DeadlineExceeded."""
        last: Mapping[Partition, int] | None = None

        def still() -> bool:
            nonlocal last
            before, last = last, self.at()
            return last is not None and last == before and (not closed or last == self.at("stable"))

        what = f"mirrored partitions of {self.destination} to stop growing"
        what += ", without open transactions" if closed else ""
        until(still, within=within, every=0.2, what=what, state=lambda: last)
