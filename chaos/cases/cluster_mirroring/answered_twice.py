"""KIP-1279 itself: a verb that is answered twice, and so refused although it was carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import BranchMirror, branch_mirror, one_coordinator
from linkflap.chaos.cases.case import Observation, case
from linkflap.harness.mirrors.cluster_mirroring.answers import MIRRORING, VerbRefused
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.model.wait import until

PARTITIONS: Final = 10
ROUNDS: Final = 20
"""How often the topic is paused, and resumed."""
PAUSED: Final = "PAUSED"
SEEN_WITHIN: Final = 5.0
"""Seconds in which a verb that was refused takes effect, or does not."""
_CLOSED: Final = "Unexpected exception during send, closing connection"
"""What a broker logs when it closes a connection because a second answer is to be sent while the
first one still is."""


@case(
    "KIP-1279-answered-twice",
    Topology(
        clusters=(ClusterSpec(name="A"), ClusterSpec(name="B", brokers=3)),
        links=(LinkSpec(source="A", destination="B"),),
    ),
    claim={"spread": True},
    control={"spread": False},
)
def answered_twice(bench: Bench, *, spread: bool) -> Observation:
    """Pause and resume in turn, each once the state allows it. `spread`: the brokers of B lead
    partitions of __mirror_state as they were given them."""
    topic = bench.topic(partitions=PARTITIONS)
    refused: Counter[str] = Counter()
    with branch_mirror(bench, topic) as mirror:
        mirror.created()
        if not spread:
            one_coordinator(bench)
        mirror.started()
        mirror.mirroring(PARTITIONS)
        for _ in range(ROUNDS):
            for verb, ask, state in (
                ("pause", mirror.pause, PAUSED),
                ("resume", mirror.resume, MIRRORING),
            ):
                if _refused_and_done(mirror, ask, state):
                    refused[verb] += 1
    facts = {
        "verbs": 2 * ROUNDS,
        "refused_and_carried_out": dict(refused),
        "connections_closed_while_an_answer_was_sent": _closed(bench),
    }
    return Observation(shown=bool(refused), facts=facts)


def _refused_and_done(mirror: BranchMirror, ask: Callable[[], None], state: str) -> bool:
    """Asks until every partition is in the state; whether a refusal took effect."""
    wanted = {state: PARTITIONS}

    def asked() -> str | None:
        """How the verb was answered; None for a refusal that stands."""
        answer, within = "accepted", WITHIN
        try:
            ask()
        except VerbRefused as error:
            answer, within = error.name, SEEN_WITHIN
        with suppress(DeadlineExceeded):
            until(lambda: mirror.states() == wanted, within=within, what=state, every=0.1)
            return answer
        return None

    answer = until(
        asked, within=2 * WITHIN, what=f"{mirror.topic} to be {state}", state=mirror.states
    )
    return answer != "accepted"


def _closed(bench: Bench) -> int:
    """How many connections B's brokers have closed so, by their logs."""
    logs = [broker.log_dir.parent / "server.log" for broker in bench.cluster("B").brokers.values()]
    return sum(log.read_text(errors="replace").count(_CLOSED) for log in logs)
