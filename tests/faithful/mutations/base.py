"""The definition of a mutation, and the options of stories for mutations.

`must` and `may` are kinds of anomalies as `check/kind`; in `may`, the name of a check stands for
all of its kinds. A mutation is found if every kind of `must` is found. Any other anomaly is a false
alarm, unless it is in `may` or the mirror's guarantee allows it. `unknown` are the checks that the
mutation makes unknown. `verdict` is the verdict of the run: `unknown` for a mutation without `must`
that only hides evidence, and `valid` if the mirror's guarantee allows the anomaly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final, Literal

from linkflap.harness.model.history import EventRow, Operation, Watermark
from tests.faithful.clusters import ABORT, COMMIT, Entry, states
from tests.faithful.made import LogKey, Made
from tests.faithful.spec import spec
from tests.faithful.stories import story

Afterwards = Callable[[Path], None]
How = Callable[[Made, Random], Afterwards | None]
Verdict = Literal["invalid", "unknown", "valid"]
BESIDE: Final[Mapping[str, str]] = {
    "aborted-read": "a reader had got the records before their marker became an ABORT",
    "byte-equality": (
        "only one of the two clusters was changed, so their bytes differ at one offset"
    ),
    "commit-aborted": (
        "the marker of a transaction whose commit or abort was acknowledged was changed or removed"
    ),
    "duplicate": "a payload occurs twice",
    "exactly-once": "an output or input occurs again, or is missing, on the relay's own cluster",
    "ghost-ack": (
        "the record that was acknowledged at an offset is not the record that is there now"
    ),
    "group-offsets": (
        "a group's records are identified by payload, and the payloads moved; or the change also "
        "exceeds another bound of the group"
    ),
    "inconsistent-offset": (
        "a reader got, or a producer was acknowledged, another record at that offset"
    ),
    "internal-topics": (
        "the coordinator's own topics were not changed with the data, so they still have its "
        "original decision"
    ),
    "last-stable-offset": (
        "a sample was taken of a log in which that transaction ended elsewhere, or never"
    ),
    "leader-epochs": "a moved batch keeps its leader epoch, which does not fit its new offset",
    "log-start": "a log start may also be changed where a mutation means another bound",
    "lost-write": (
        "an acknowledged payload is missing, not visible, or cannot be distinguished from one "
        "that was never mirrored"
    ),
    "marker-pairing": "a marker ends other data than it was written for, or data of another epoch",
    "order-equality": "the payloads of only one of the two clusters were changed",
    "poll-continuity": (
        "a consumer's polls no longer agree with each other, or with the records between them"
    ),
    "producer-id-uniqueness": "another producer uses the changed id or epoch",
    "program-copies": "a program's copy is missing or repeated, because its input or output is",
    "provenance": "a batch of another cluster's client is among the cluster's own batches",
    "read-committed-visibility": (
        "readers got records that are not visible any more, or passed records that now are"
    ),
    "record-equality": (
        "only one of the two clusters was changed, so their records differ at one offset"
    ),
    "replica-agreement": "only one replica was changed",
    "send-order": "records of one producer are in another order than they were sent",
    "sequence-continuity": (
        "a producer's batches, with their sequences, are missing, repeated or moved"
    ),
    "share-groups": "one wrong row of a member breaks several promises to its group",
    "standby-isolation": (
        "another promotion offset is reported, so an acknowledged write is in the mirrored range"
    ),
    "torn-transaction": "the transaction has other partitions, which were not changed",
    "truncation-accounting": (
        "the mirror's report of its range disagrees with bytes that were changed"
    ),
    "uncommitted-read": (
        "according to the sample, the transaction was open when a reader got its records"
    ),
    "unseen": "an acknowledged record is at an offset that readers passed, and no reader got it",
}
"""Why a check may find a mutation that is aimed at another check: the finding follows from it in
some runs."""


def torn(key: LogKey) -> Afterwards:
    """Takes the last bytes of the last segment of a captured replica."""

    def tear(root: Path) -> None:
        path = sorted(key.folder(root).glob("*.log"))[-1]
        path.write_bytes(path.read_bytes()[:-7])

    return tear


class NothingToChange(LookupError):
    """A story has nothing that this mutation could change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One mutation. `how` changes a story, and may return a function that changes the files once
    the story is written."""

    name: str
    what: str
    on: Mapping[str, object]
    how: How
    must: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    verdict: Verdict = "invalid"

    def permits(self, kind: str) -> bool:
        """Whether an anomaly (`check/kind`) may be found."""
        return kind in self.must or kind in self.may or kind.partition("/")[0] in self.may

    @property
    def checks(self) -> Mapping[str, bool]:
        """Check -> whether it must find the mutation (True) or only may (False)."""
        return {each.partition("/")[0]: False for each in self.may} | {
            each.partition("/")[0]: True for each in self.must
        }

    def made(self, seed: int) -> tuple[Made, Afterwards | None]:
        """The mutated story of a seed. If the mutation does not apply to it, the next seeds are
        tried."""
        for further in range(SEEDS):
            made = story(spec(seed + 10_000 * further, **self.on))
            try:
                return made, self.how(made, Random(seed))
            except (StopIteration, NothingToChange):
                continue
        raise NothingToChange(f"{self.name} has no place in {SEEDS} stories from seed {seed} on")


SEEDS = 30
CATALOGUE: dict[str, Mutation] = {}


def mutation(
    on: Mapping[str, object],
    *,
    must: str = "",
    may: str = "",
    unknown: str = "",
    verdict: Verdict = "invalid",
) -> Callable[[How], How]:
    """Registers a function as the mutation of its name; its docstring describes the mutation. Kinds
    are separated by spaces."""

    def register(how: How) -> How:
        name = how.__name__.replace("_", "-")
        assert name not in CATALOGUE, name
        CATALOGUE[name] = Mutation(
            name=name,
            what=" ".join((how.__doc__ or "").split()),
            on=on,
            how=how,
            must=frozenset(must.split()),
            may=frozenset(may.split()) - frozenset(must.split()),
            unknown=frozenset(unknown.split()),
            verdict=verdict,
        )
        return how

    return register


_CALM = {
    "partitions": 2,
    "brokers": 2,
    "begun": 0,
    "deleted": False,
    "flap": False,
    "elections": False,
    "lag": False,
    "relay": False,
    "behind": False,
    "open_at_end": False,
    "moves": False,
    "open_at_death": False,
    "late_commit": False,
    "outlives": False,
    "shares": False,
}
_KEPT = {"producer_ids": "jump", "bound": "hw", "leader_epochs": "rewrite"}
_SHADOW: dict[str, object] = {**_CALM, "mirror": "shadow", "options": _KEPT}
_MM2: dict[str, object] = {**_CALM, "mirror": "mm2", "options": {"delivery": "at-least-once"}}
PAIR = {**_SHADOW, "shape": "pair"}
MM2_PAIR = {**_MM2, "shape": "pair"}
FORCED = {**_SHADOW, "shape": "failover", "forced": True}
PLANNED = {**_SHADOW, "shape": "failover", "forced": False}
MM2_FORCED = {**_MM2, "shape": "failover", "forced": True}
MM2_PLANNED = {**_MM2, "shape": "failover", "forced": False}
ROUND_TRIP = {**_SHADOW, "shape": "round-trip", "forced": True, "lag": True}
TRUNCATING = {
    **FORCED,
    "options": {**_KEPT, "open_transactions": "truncate-stable"},
    "overlap": False,
}
OVERLAPPING_TRUNCATION = {**TRUNCATING, "overlap": True}
PLANNED_ROUND_TRIP = {**_SHADOW, "shape": "round-trip", "forced": False}
RESETS = {**FORCED, "options": {**_KEPT, "producer_ids": "reset", "open_transactions": "abort"}}
COPIED = {**_SHADOW, "shape": "copied"}
COPIED_RESET = {**RESETS, "shape": "copied", "forced": False}
CHAIN = {**_SHADOW, "shape": "chain", "forced": False}
V1, V2 = {"version": 1}, {"version": 2}


def mapped(story: Mapping[str, object], **options: object) -> dict[str, object]:
    """A story with other options of its mirror."""
    known = story["options"]
    assert isinstance(known, Mapping)
    return {**story, "options": {**known, **options}}


# What is where.


def promotion(made: Made, cluster: str = "B", partition: int = 0) -> int:
    """The first offset that is a cluster's own; beyond everything where it was never promoted."""
    offsets = [
        e.data["offset"]
        for e in made.events
        if e.kind == "promotion" and e.data["cluster"] == cluster
    ]
    mine = offsets[partition :: made.scenario.topics.partitions]
    return int(str(mine[-1])) if mine else 2**62


def data(
    made: Made, cluster: str, partition: int = 0, *, native: bool, state: str = "", moment: str = ""
) -> list[Entry]:
    """Data batches of a cluster, its own or those that came over a link, that ended in some state
    (or any)."""
    log = made.log(cluster, partition, moment=moment)
    outcome, promoted = (
        states(log).state,
        promotion(made, cluster, partition) if cluster != "A" else 0,
    )
    mine = [e for e in log if e.ends is None and (e.offset >= promoted) == native]
    return [e for e in mine if outcome[e.offset] in (state or outcome[e.offset])]


def returned(made: Made, uid: int) -> Operation:
    """The answer that the client of a payload got about its operation."""
    return next(
        o
        for o in made.operations
        if o.phase == "return" and any(g.first_uid <= uid < g.first_uid + g.count for g in o.sends)
    )


def promised(made: Made, entry: Entry) -> bool:
    """Whether clients know all of a batch to be committed."""
    row = next((o for o in made.operations if o.phase == "return" and _of(o, entry.uids[0])), None)
    if row is None or row.outcome != "ok":
        return False
    return row.ending == "commit" or row.kind == "send"


def _of(row: Operation, uid: int) -> bool:
    return any(g.first_uid <= uid < g.first_uid + g.count for g in row.sends)


def kept_out(entry: Entry) -> Callable[[list[Entry]], list[Entry]]:
    """Rewrites a log without a batch."""
    return lambda log: [e for e in log if e.offset != entry.offset]


def put(entry: Entry, **fields: object) -> Callable[[list[Entry]], list[Entry]]:
    """Rewrites a log with other fields of a batch."""
    return lambda log: [replace(e, **fields) if e.offset == entry.offset else e for e in log]  # type: ignore[arg-type]


def event(made: Made, kind: str, at: int = 0, /, **changes: object) -> None:
    """Changes the data of one event of a kind, by its index."""
    index = [i for i, e in enumerate(made.events) if e.kind == kind][at]
    old = made.events[index]
    made.events[index] = replace(old, data={**old.data, **changes})


def journal(made: Made, **changes: object) -> None:
    """Changes what the first mirror that ended says of partition 0."""
    rows = next(e for e in made.events if e.kind == "mirror-stopped").data["partitions"]
    changed = [{**row, **changes} if row["partition"] == 0 else row for row in rows]  # type: ignore[attr-defined]
    event(made, "mirror-stopped", 0, partitions=changed)


def drop_events(made: Made, which: Callable[[EventRow], bool]) -> None:
    made.events = [e for e in made.events if not which(e)]


def change_return(made: Made, row: Operation, **fields: object) -> None:
    made.operations[made.operations.index(row)] = replace(row, **fields)  # type: ignore[arg-type]


def marks(made: Made, cluster: str) -> list[Watermark]:
    return [m for m in made.marks if (m.cluster, m.partition) == (cluster, 0)]


def change_mark(made: Made, mark: Watermark, **fields: object) -> None:
    made.marks[made.marks.index(mark)] = replace(mark, **fields)  # type: ignore[arg-type]


def own_marker(made: Made, ends: int, *, at: int = -1, going_on: bool | None = None) -> Entry:
    """A marker in B's own era that ends data as its client's answer said; `going_on`: its
    producer id writes on (or not).
    """
    log = made.log("B")
    decided = states(log)
    asked = "commit" if ends == COMMIT else "abort"
    ending = {"committed": COMMIT, "aborted": ABORT}
    found = []
    for entry in data(made, "B", native=True):
        if ending.get(decided.state[entry.offset]) != ends or any(r.uid < 0 for r in entry.records):
            continue
        row = returned(made, entry.uids[0]) if entry.uids else None
        marker = next(e for e in log if e.offset == decided.marker[entry.offset])
        goes_on = any(
            e.pid == marker.pid and e.offset > marker.offset and e.ends is None for e in log
        )
        if row and row.outcome == "ok" and row.ending == asked and going_on in (None, goes_on):
            found.append(marker)
    if not found:
        raise NothingToChange("B has no such marker")
    return found[at]


def known_committed(made: Made, rng: Random, *, native: bool) -> Entry:
    """A batch of B that clients know to be committed; neither the first such nor the last."""
    found = [e for e in data(made, "B", native=native) if promised(made, e)]
    return found[rng.randrange(1, len(found) - 1)]
