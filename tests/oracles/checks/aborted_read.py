"""A read_committed reader never gets a record whose transaction was aborted: by a marker there, or
by its producer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.oracles.generations import PlainGeneration
from tests.oracles.plain import Anomaly, Plain, of_send
from tests.oracles.promises import never_committed, refused
from tests.oracles.story import Story

EACH = frozenset({"aborted-read", "refused-read"})
DESPITE_TORN = frozenset({"refused-read"})
BESIDE = "a reader had got the records before their marker became an ABORT"


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every():
            wrong = {
                offset
                for _, offset, uid in committed_reads(story, generation)
                if aborted(plain, story, generation, offset, uid)
            }
            found += [plain.anomaly("aborted-read", generation.cluster, offset) for offset in wrong]
            got = {
                pair
                for r in story.polls(generation)
                for pair in zip(r.offsets, r.uids, strict=True)
            }
            never = {offset for offset, uid in got if uid in refused(plain)}
            found += [plain.anomaly("refused-read", generation.cluster, offset) for offset in never]
    return found


def committed_reads(story: Story, generation: PlainGeneration) -> Iterator[tuple[Any, int, int]]:
    """(poll, offset, payload) of all records that read_committed readers got."""
    for read in story.polls(generation):
        if read.isolation == "read_committed":
            for offset, uid in zip(read.offsets, read.uids, strict=True):
                yield read, offset, uid


def aborted(plain: Plain, story: Story, generation: PlainGeneration, offset: int, uid: int) -> bool:
    log = story.log(generation)
    record = log.at(offset) if log else None
    if record is not None and record.uid == uid and record.state == "aborted":
        return True
    send = sent(plain, uid)
    return send is not None and never_committed(send)


def sent(plain: Plain, uid: int) -> Any:
    """The transaction in which a payload was sent."""
    return next(
        (
            s
            for s in plain.sends
            if s.kind == "transaction" and uid in [u for u, _, _ in of_send(s)]
        ),
        None,
    )
