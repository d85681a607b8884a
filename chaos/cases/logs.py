"""Logs as bytes: the batches of one replica on disk, and which of them are markers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from linkflap.harness.log import layout, reference
from linkflap.harness.log.reference import Record, ReferenceBatch, control_type
from linkflap.harness.model.topology import TopicPartition

_NAMES: Final = {layout.ABORT: "ABORT", layout.COMMIT: "COMMIT"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A control record: where it is, what it is, and whose."""

    offset: int
    kind: str
    producer_id: int
    producer_epoch: int

    @property
    def words(self) -> str:
        return (
            f"{self.kind} @ {self.offset} (producer {self.producer_id}, epoch "
            f"{self.producer_epoch})"
        )


def batches(log_dir: Path, tp: TopicPartition) -> list[ReferenceBatch]:
    """Every complete batch that a replica has on disk; what a broker is just writing is left
    out."""
    found: list[ReferenceBatch] = []
    for path in sorted((log_dir / f"{tp[0]}-{tp[1]}").glob("*.log")):
        data = path.read_bytes()
        end = max((batch.stop for batch in layout.walk(data)), default=0)
        found += reference.batches(data[:end])
    return found


def markers(log: Iterable[ReferenceBatch]) -> list[Marker]:
    """The control records of a log, in order."""
    return [
        Marker(
            offset=batch.base_offset,
            kind=_NAMES.get(control_type(batch.codec, batch.body)[0], "other"),
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
        )
        for batch in log
        if batch.is_control
    ]


def records(log: Iterable[ReferenceBatch]) -> list[Record]:
    """The data records of a log, in order."""
    return [record for batch in log if not batch.is_control for record in reference.records(batch)]


def table(log: Sequence[ReferenceBatch]) -> list[str]:
    """One line per batch, for evidence: offsets, what it is, producer id, epoch, first sequence,
    leader epoch."""
    kinds = {marker.offset: marker.kind for marker in markers(log)}
    lines = []
    for batch in log:
        kind = kinds.get(batch.base_offset) or ("transactional" if batch.transactional else "plain")
        lines.append(
            f"{batch.base_offset}-{batch.last_offset} {kind} producer {batch.producer_id} epoch "
            f"{batch.producer_epoch} sequence {batch.base_sequence} leader epoch "
            f"{batch.leader_epoch}"
        )
    return lines
