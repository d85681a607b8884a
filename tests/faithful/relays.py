"""Relays and programs: for each record that its group gets, a relay writes one record to another
topic, in transactions with the group's offsets (KIP-98). A program does the same and is seen
only by the headers of its outputs, which name their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from linkflap.harness.model.history import Fetched
from linkflap.harness.model.scenario import WorkloadSpec
from tests.faithful.clients import Producer
from tests.faithful.clusters import Cluster, Entry, Spot
from tests.faithful.made import Made
from tests.faithful.observers import Reader
from tests.faithful.spec import OUTPUTS, TOPIC

GROUP = "relays"
NAME = "relay-1"


@dataclass(slots=True)
class Relay:
    """A consumer and a producer. `outputs` is the topic for its outputs, which go to the partition
    with the number of the input."""

    reader: Reader
    producer: Producer
    outputs: str

    def start(self, cluster: Cluster, positions: dict[Spot, int]) -> None:
        """Begins on a cluster at the committed offsets of its group."""
        self.producer.start(cluster)
        self.reader.assign(cluster, positions)

    def step(
        self, rng: Random, *, everything: bool = False, appended: bool = False, ending: str = ""
    ) -> None:
        """One poll and one transaction. If the transaction is aborted, the relay reads the inputs
        again."""
        before = dict(self.reader.positions)
        got = {
            f: f.runs for f in self.reader.poll(rng, everything=everything, commits=False) if f.runs
        }
        if not got:
            return
        self._begin(list(got), rng, ending)
        while self.producer.write(rng, appended=appended):
            pass
        writing = self.producer.writing
        committed = writing is not None and writing.row.ending == "commit"
        self.producer.end()
        if committed:
            self.reader.commit([(f.topic, f.partition) for f in got])
        else:
            assert self.reader.cluster is not None
            self.reader.assign(self.reader.cluster, before)

    def killed(self, rng: Random, *, asked: bool, appended: bool) -> None:
        """The relay's process is killed during a transaction; `asked`: its commit was already
        requested. A successor begins at the group's committed offsets."""
        got = [f for f in self.reader.poll(rng, commits=False) if f.runs]
        if got:
            self._begin(got, rng, "commit")
            while self.producer.write(rng, appended=appended) and (asked or rng.random() < 0.7):
                pass
            self.producer.killed(asked=asked)
            if asked:
                self.reader.commit([(f.topic, f.partition) for f in got], written=False)
        assert self.reader.cluster is not None
        self.reader.process = 0
        self.start(self.reader.cluster, {**self.reader.positions, **self.reader.held})

    def _begin(self, got: list[Fetched], rng: Random, ending: str) -> None:
        counts = {(self.outputs, f.partition): sum(count for _, _, count in f.runs) for f in got}
        made_from = {(self.outputs, f.partition): f for f in got}
        self.producer.begin(
            counts, rng, counts=counts, ending=ending or rng.choices(("commit", "abort"), (6, 1))[0]
        )
        writing = self.producer.writing
        assert writing is not None
        sends = tuple(
            replace(g, made_from=made_from[g.topic, g.partition]) for g in writing.row.sends
        )
        row = replace(writing.row, sends=sends, group=GROUP)
        self.producer.notes.operations[-1] = writing.row = row


def as_program(made: Made) -> Made:
    """The same story without the relay's history."""
    inputs = _inputs(made)
    for captured in made.logs.values():
        if captured.bounds.topic == OUTPUTS:
            captured.entries = [_carried_on(entry, inputs) for entry in captured.entries]
    made.operations = [row for row in made.operations if row.group != GROUP]
    made.polls = [poll for poll in made.polls if poll.reader != NAME]
    workload = WorkloadSpec(
        kind="command",
        home="A",
        options={"group": GROUP},
        command=("python3", "program.py"),
        reads=(TOPIC.partition(".")[2],),
        writes=(OUTPUTS.partition(".")[2],),
        exactly_once=True,
    )
    others = tuple(w for w in made.scenario.workloads if w.kind != "relay")
    made.scenario = replace(made.scenario, workloads=(*others, workload))
    return made


def _inputs(made: Made) -> Mapping[int, int]:
    """Payload id of an output -> payload id of its input."""
    found: dict[int, int] = {}
    for row in made.operations:
        for group in row.sends if row.group == GROUP else ():
            if group.made_from is not None:
                uids = [uid + i for uid, _, count in group.made_from.runs for i in range(count)]
                found |= {group.first_uid + i: uid for i, uid in enumerate(uids)}
    return found


def _carried_on(entry: Entry, inputs: Mapping[int, int]) -> Entry:
    return replace(
        entry,
        records=tuple(
            r._replace(uid=inputs.get(r.uid, r.uid), relayed=None) for r in entry.records
        ),
    )
