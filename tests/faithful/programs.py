"""Programs: a relay as if it were a user's program. It writes no history, and its outputs have the
headers of their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from linkflap.harness.model.scenario import WorkloadSpec
from tests.faithful.entries import Entry
from tests.faithful.made import Made
from tests.faithful.relays import GROUP, NAME
from tests.faithful.spec import OUTPUTS, TOPIC


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
