"""Finds batches that Kafka does not write: corrupt, out of order, or with impossible headers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linkflap.harness.log import layout
from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.log.segment_files import Segment, SegmentDamage


def unwritten(segments: Sequence[Segment], headers: Headers) -> list[SegmentDamage]:
    """Headers under a CRC that holds which no broker writes, whatever became of the records.

    Compaction takes records away and leaves the offsets: fewer records than offsets, and none at
    all, are as they should be. Ids below -1 are what some mirrors make of others' ids.
    """
    offsets = headers.last_offset - headers.base_offset + 1
    data, marker = (
        headers.control == layout.DATA,
        np.isin(headers.control, (layout.ABORT, layout.COMMIT)),
    )
    rules = (
        (headers.count < 0, "its header tells of {count} records"),
        ((headers.count > offsets) & (offsets > 0), "its header tells of {count} records"),
        (marker & ~headers.transactional, "the marker of a transaction that is not transactional"),
        (
            data & headers.transactional & (headers.producer_id == -1),
            "transactional, and of no producer",
        ),
    )
    return [
        SegmentDamage(
            kind="impossible-header",
            file=segments[int(headers.segment[i])].name,
            position=int(headers.position[i]),
            detail=(
                f"offsets {headers.base_offset[i]} to {headers.last_offset[i]}: "
                f"{words.format(count=headers.count[i])}"
            ),
        )
        for broken, words in rules
        for i in np.flatnonzero(broken & headers.crc_ok)
    ]


def corrupt(segments: Sequence[Segment], headers: Headers) -> list[SegmentDamage]:
    return [
        SegmentDamage(
            kind="corrupt-batch",
            file=segments[int(headers.segment[i])].name,
            position=int(headers.position[i]),
            detail=(
                f"offsets {headers.base_offset[i]} to {headers.last_offset[i]}: the CRC-32C is not "
                f"{headers.crc[i]:#010x}"
            ),
        )
        for i in np.flatnonzero(~headers.crc_ok)
    ]


def disorder(segments: Sequence[Segment], headers: Headers) -> list[SegmentDamage]:
    """Batches that do not begin after everything before them, and segments whose name is not below
    their offsets."""
    damage: list[SegmentDamage] = []
    if len(headers):
        reached = np.maximum.accumulate(headers.last_offset)
        early = np.flatnonzero(headers.base_offset[1:] <= reached[:-1]) + 1
        for i in early:
            detail = (
                f"begins at offset {headers.base_offset[i]}, the log before it reaches "
                f"{reached[i - 1]}"
            )
            file, position = segments[int(headers.segment[i])].name, int(headers.position[i])
            damage.append(
                SegmentDamage(kind="overlap", file=file, position=position, detail=detail)
            )
        damage.extend(
            SegmentDamage(
                kind="overlap",
                file=segments[int(headers.segment[i])].name,
                position=int(headers.position[i]),
                detail=detail,
            )
            for i in np.flatnonzero(headers.last_offset < headers.base_offset)
            if (
                detail := f"ends at offset {headers.last_offset[i]}, "
                f"before its first offset {headers.base_offset[i]}"
            )
        )
    for index, segment in enumerate(segments):
        first = headers.base_offset[headers.segment == index][:1]
        if len(first) and first[0] < segment.base_offset:
            detail = (
                f"the first batch begins at offset {first[0]}, below the offset in the file's name"
            )
            damage.append(
                SegmentDamage(
                    kind="misplaced-segment", file=segment.name, position=0, detail=detail
                )
            )
    return damage
