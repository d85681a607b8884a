"""Producer epochs that say that a producer was fenced which wrote on."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.faithful.entries import COMMIT
from tests.faithful.made import Made
from tests.faithful.mutations.base import (
    FORCED,
    V2,
    NothingToChange,
    data,
    mutation,
    own_marker,
    put,
)


@mutation(
    {**FORCED, **V2},
    must="marker-pairing/marker-epoch",
    may="internal-topics/marker-missing internal-topics/marker-unexplained",
)
def marker_of_an_older_epoch(made: Made, rng: Random) -> None:
    """A COMMIT marker of B's own has a producer epoch below that of the data that it ends."""
    marker = own_marker(made, "B", COMMIT)
    made.change("B", 0, put(marker, epoch=marker.epoch - 2))


@mutation(
    {**FORCED, **V2, "steps": 90},
    must="marker-pairing/stale-data",
    may="sequence-continuity",
)
def fenced_producer_wrote(made: Made, rng: Random) -> None:
    """Data of B's own has the producer epoch before that of the marker that it follows."""
    _fenced(made, 1)


@mutation(
    {**FORCED, **V2, "steps": 90},
    must="sequence-continuity/epoch-regression marker-pairing/stale-data",
    may="producer-id-uniqueness/producer-id-collision",
)
def epoch_went_back(made: Made, rng: Random) -> None:
    """Data of B's own has a producer epoch below that of the same producer's earlier data."""
    _fenced(made, 2)


def _fenced(made: Made, epochs: int) -> None:
    """Data of one transaction gets an epoch so many below; the marker before it in the partition
    has the epoch it had."""
    log, mine = made.log("B"), data(made, "B", native=True, state="committed")
    for entry in mine:
        before = [
            e
            for e in log
            if e.pid == entry.pid and e.offset < entry.offset and e.epoch <= entry.epoch
        ]
        earlier = [e for e in before if e.ends is None and e.epoch < entry.epoch]
        markers = [e for e in before if e.ends is not None]
        if entry.epoch >= epochs and earlier and markers and markers[-1].epoch == entry.epoch:
            break
    else:
        raise NothingToChange("no producer of B wrote in two epochs")
    made.change(
        "B",
        0,
        lambda all_: [
            (
                replace(e, epoch=e.epoch - epochs)
                if (e.pid, e.epoch, e.ends) == (entry.pid, entry.epoch, None)
                else e
            )
            for e in all_
        ],
    )
