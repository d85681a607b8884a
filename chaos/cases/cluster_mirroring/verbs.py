"""The verbs of a mirror (KIP-1279 itself): in random order, answered twice, half carried out, on
topics that were made again; and the log of the mirrors' states with another leader."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from linkflap.chaos.cases import wire
from linkflap.chaos.cases.bench import PAIR, WITHIN, Bench, happens, wait_for
from linkflap.chaos.cases.branch_mirror import STOPPED, BranchMirror, branch_mirror, one_coordinator
from linkflap.chaos.cases.case import Observation, case
from linkflap.harness.mirrors.cluster_mirroring.admin import FAILED, MIRRORING, VerbRefused
from linkflap.harness.mirrors.cluster_mirroring.administration import write_to_brokers
from linkflap.harness.mirrors.cluster_mirroring.state_topic import STATES
from linkflap.harness.mirrors.cluster_mirroring.verbs import (
    MirrorOnBuild,
    Name,
    Verb,
    play,
    sequence,
)
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure
from linkflap.harness.model.wait import pause
from linkflap.topologies import parse

LENGTH: Final = 20
SEEDS: Final = 4


def _played(
    bench: Bench, steps_of: list[list[tuple[Verb, ...]]], topics: list[list[str]]
) -> Observation:
    """Each sequence on a mirror of its own; the first disagreement of each."""
    wrong: list[str] = []
    asked = refused = early = 0
    for number, (steps, named) in enumerate(zip(steps_of, topics, strict=True)):
        for topic in named:
            bench.cluster("A").create_topic(topic, partitions=2)
        with branch_mirror(bench, named[0], name=f"verbs-{number}") as mirror:
            seen = play(MirrorOnBuild(mirror.admin, mirror.name, mirror.configs), steps)
        wrong += [step.words for step in seen if step.wrong]
        asked += sum(len(step.answers) for step in seen)
        refused += sum(answer != "" for step in seen for _, answer in step.answers)
        early += sum(step.early for step in seen)
    counts = {
        "sequences": len(steps_of),
        "verbs": asked,
        "refused": refused,
        "refused_for_a_moment": early,
        "disagreements": wrong,
    }
    return Observation(shown=bool(wrong), facts=counts | {"disagreements": wrong})


@case("KIP-1279-verbs", PAIR, claim={"legal": False}, control={"legal": True})
def random_verbs(bench: Bench, *, legal: bool) -> Observation:
    topics = [[f"A.{bench.name(f'{base}{number}')}" for base in "xy"] for number in range(SEEDS)]
    steps = [
        list(sequence(seed, named, LENGTH, legal=legal, but_known=True))
        for seed, named in enumerate(topics)
    ]
    return _played(bench, steps, topics)


@case(
    "KIP-1279-start-without-a-mirror",
    PAIR,
    claim={"names": ("create", "delete", "start")},
    control={"names": ("create", "start")},
)
@case(
    "KIP-1279-stop-of-a-paused-topic",
    PAIR,
    claim={"names": ("create", "start", "pause", "stop")},
    control={"names": ("create", "start", "stop")},
)
def one_sequence(bench: Bench, names: Sequence[Name]) -> Observation:
    """A sequence about one topic."""
    topic = f"A.{bench.name('x')}"
    steps: list[tuple[Verb, ...]] = [
        (Verb(name=name) if name in ("create", "delete") else Verb(name=name, topics=(topic,)),)
        for name in names
    ]
    return _played(bench, [steps], [[topic]])


PARTITIONS: Final = 10
ROUNDS: Final = 20
"""How often the topic is paused, and resumed."""
PAUSED: Final = "PAUSED"
SEEN_WITHIN: Final = 5.0
"""Seconds in which a verb that was refused takes effect, or does not."""
_CLOSED: Final = "Unexpected exception during send, closing connection"
"""A broker logs this when it closes a connection because a second answer is to be sent while it
still sends the first one."""


@case(
    "KIP-1279-answered-twice",
    parse("A->B:3"),
    claim={"spread": True},
    control={"spread": False},
)
def answered_twice(bench: Bench, *, spread: bool) -> Observation:
    """Pause and resume in turn, each once the state allows it. `spread`: the brokers of B lead
    partitions of __mirror_state as they were given them."""
    topic = bench.topic(partitions=PARTITIONS)
    refused: Counter[str] = Counter()
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(PARTITIONS, between=() if spread else (partial(one_coordinator, bench),))
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
        there = happens(state, lambda: mirror.states() == wanted, within=within, every=0.1)
        return answer if there else None

    answer = wait_for(
        f"{mirror.topic} to be {state}", asked, within=2 * WITHIN, state=mirror.states
    )
    return answer != "accepted"


def _closed(bench: Bench) -> int:
    """How many connections B's brokers have closed so, by their logs."""
    logs = [broker.log_dir.parent / "server.log" for broker in bench.cluster("B").brokers.values()]
    return sum(log.read_text(errors="replace").count(_CLOSED) for log in logs)


ASKED: Final = 15.0
"""Seconds for which stop is asked for unless it is accepted, and in which it takes effect."""
_ACCEPTED: Final = "accepted"


@case(
    "KIP-1279-half-promoted",
    parse("A:3->B:3"),
    claim={"spread": True},
    control={"spread": False},
)
def half_promoted(bench: Bench, *, spread: bool) -> Observation:
    """One partition has its only replica on a broker of A that dies; stop is asked for. `spread`:
    the brokers of B lead partitions of __mirror_state as they were given them."""
    lost = bench.broker(3)
    topic = bench.topic(partitions=PARTITIONS, assigned=[[1]] * (PARTITIONS - 1) + [[lost.id]])
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(PARTITIONS, between=() if spread else (partial(one_coordinator, bench),))
        lost.kill()
        before = {MIRRORING: PARTITIONS - 1, FAILED: 1}
        wait_for(
            f"one partition of {topic} to be {FAILED}",
            lambda: mirror.states() == before,
            every=0.1,
            state=mirror.states,
        )
        answers = _answers(mirror)
        states = dict(mirror.states())
        lost.start()
        stopped = {STOPPED: PARTITIONS}
        happens("all to be STOPPED", lambda: mirror.states() == stopped, within=ASKED, every=0.3)
        later = dict(mirror.states())
    shown = _ACCEPTED not in answers and states.get(STOPPED, 0) > 0
    facts = {
        "answers": dict(answers),
        "states_before": before,
        "states_at_the_end": states,
        "states_once_the_broker_is_back": later,
    }
    return Observation(shown=shown, facts=facts)


def _answers(mirror: BranchMirror) -> Counter[str]:
    """The answers to stop until it is accepted, with their number."""
    answers: Counter[str] = Counter()

    def accepted() -> bool:
        try:
            mirror.stop()
        except VerbRefused as error:
            answers[error.name] += 1
            return False
        answers[_ACCEPTED] += 1
        return True

    happens("stop to be accepted", accepted, within=ASKED, every=0.3)
    return answers


WATCHED: Final = 20.0
"""Seconds for which B's log is watched after the last verb; a mirror starts in six."""


@case("KIP-1279-created-anew", PAIR, claim={"anew": True}, control={"anew": False})
def created_anew(bench: Bench, *, anew: bool) -> Observation:
    """A deleted mirror that is created again with its old name, and not started, mirrors its old
    topics again."""
    topic = bench.topic()
    bench.write(topic, [b"of A"] * 5)
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1)
        wait_for(
            "the records of A to be on B",
            lambda: bench.logged(topic, cluster="B").count("of A") == 5,
            every=0.2,
        )
        mirror.promoted(1)
        bench.write(topic, [b"of B"] * 5, cluster="B")
        before = bench.logged(topic, cluster="B")
        mirror.admin.delete(mirror.name)
        if anew:
            mirror.create()
        happens(
            "B's log to change",
            lambda: bench.logged(topic, cluster="B") != before,
            within=WATCHED,
            every=0.5,
        )
        after, now = bench.logged(topic, cluster="B"), dict(mirror.states())
    facts = {
        "acknowledged_by_B": before.count("of B"),
        "in_B_log_at_the_end": after.count("of B"),
        "state_at_the_end": "".join(now) or "in no mirror",
    }
    return Observation(shown=after.count("of B") < before.count("of B"), facts=facts)


OLD, NEW = 20, 50


@case("KIP-1279-topic-recreated", PAIR, claim={"noticed": False}, control={"noticed": True})
def topic_recreated(bench: Bench, *, noticed: bool) -> Observation:
    """`noticed`: the mirror has reported that the topic is deleted before it is made again."""
    topic = bench.topic()
    bench.write(topic, [b"old %d" % n for n in range(OLD)])
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1)
        wait_for("B to have the old topic", lambda: _counted(bench, topic) == (OLD, 0), every=0.2)
        bench.delete_topic(topic)
        if noticed:
            wait_for(
                f"{topic} to be FAILED",
                lambda: mirror.states() == {FAILED: 1},
                every=0.2,
                state=mirror.states,
            )
        bench.deployment.clusters["A"].create_topic(topic, partitions=1)
        bench.write(topic, [b"new %d" % n for n in range(NEW)])
        described = _watched(mirror)
        old, new = _counted(bench, topic)
    return Observation(
        shown=described.get(f"{MIRRORING}, lag 0", 0) > 0 and new < NEW,
        facts={"of_the_deleted_topic": old, "of_the_new_topic": new, "describe": described},
    )


def _watched(mirror: BranchMirror) -> dict[str, int]:
    """How often describe answered what, in the second half of the time."""
    described: dict[str, int] = {}
    began = time.monotonic()
    while (seconds := time.monotonic() - began) < WATCHED:
        for row in mirror.rows() if seconds > WATCHED / 2 else ():
            words = f"{row.state}, lag {row.lag}" + (f": {row.error}" if row.error else "")
            described[words] = described.get(words, 0) + 1
        pause(0.2, lambda: False)
    return described


def _counted(bench: Bench, topic: str) -> tuple[int, int]:
    """Records of the old and of the new topic in B's log, by its bytes."""
    found = bench.logged(topic, cluster="B")
    return sum(each.startswith("old") for each in found), sum(
        each.startswith("new") for each in found
    )


PROMOTED: Final = {STOPPED: 1}
FAILBACK: Final = 20.0
"""Seconds that a failback has."""
_OF_A: Final = 5


@case(
    "KIP-1279-promotion-forgotten",
    parse("A->B:3"),
    claim={"moved": True},
    control={"moved": False},
)
def promotion_forgotten(bench: Bench, *, moved: bool) -> Observation:
    """Broker 1 of B leads all of __mirror_state. `moved`: it gives up a partition of it, which has
    nothing to do with the topic. The topic gets another leader."""
    topic = bench.topic()
    bench.write(topic, [b"of A"] * _OF_A)
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1, between=(partial(one_coordinator, bench),))
        promoted(mirror)
        bench.write(topic, [b"of B"], cluster="B")
        number = empty_state_partition(bench)
        if moved:
            bench.lead(STATES, number, bench.broker(2, "B"), "B")
        leader = bench.ask(bench.up("B")).leadership(topic)[0].leader
        bench.lead(topic, 0, bench.broker(2 if leader == 3 else 3, "B"), "B")
        happens(f"{topic} to be {STOPPED} again", lambda: mirror.states() == PROMOTED, every=0.5)
        states = dict(mirror.states())
        answers = write_to_brokers(bench.admin("B"), bench.bootstrap("B"), [topic])
        facts = {
            "moved": f"{STATES}-{number}" if moved else "",
            "states_a_minute_later": states,
            "a_write_a_minute_later": [one.words for one in answers],
            "failback": _failback(bench, topic),
        }
    return Observation(shown=states != PROMOTED, facts=facts)


def promoted(mirror: BranchMirror) -> None:
    """Stops it. A stop may be refused, and may be refused and carried out."""

    def stopped() -> bool:
        with contextlib.suppress(VerbRefused):
            mirror.stop()
        return mirror.states() == PROMOTED

    what = f"{mirror.topic} to be {STOPPED}"
    wait_for(what, stopped, within=2 * WITHIN, every=1.0, state=mirror.states)


def empty_state_partition(bench: Bench) -> int:
    """A partition of __mirror_state that keeps no state. Raises EnvironmentFailure."""
    for number in sorted(bench.ask(bench.up("B")).leadership(STATES)):
        if not bench.log(STATES, number, cluster="B"):
            return number
    raise EnvironmentFailure(f"every partition of {STATES} has records")


def _failback(bench: Bench, topic: str) -> dict[str, str]:
    """The state and the error of a mirror back once it mirrors, or when its time is over."""
    with branch_mirror(bench, topic, "A", source="B") as back:
        back.created()
        back.started()
        with contextlib.suppress(DeadlineExceeded):
            back.mirroring(1, FAILBACK)
        return {row.state: row.error for row in back.rows()}


RECORDS: Final = 200
OF_B: Final = 10


@case(
    "KIP-1279-failback-from-zero",
    parse("A->B:3"),
    claim={"moved": True},
    control={"moved": False},
)
def failback_from_zero(bench: Bench, *, moved: bool) -> Observation:
    """Broker 1 of B leads all of __mirror_state. `moved`: it gives up a partition of it, which has
    nothing to do with the topic. A's log is no longer than B's."""
    topic = bench.topic()
    bench.write(topic, [b"of A %d" % n for n in range(RECORDS)])
    with branch_mirror(bench, topic) as away:
        away.mirrors(1, between=(partial(one_coordinator, bench),))
        bench.ends_at(RECORDS, topic)
        promoted(away)
    bench.write(topic, [b"of B %d" % n for n in range(OF_B)], cluster="B")
    number = empty_state_partition(bench)
    if moved:
        bench.lead(STATES, number, bench.broker(2, "B"), "B")
    with branch_mirror(bench, topic, "A", source="B") as back:
        back.created()
        back.started()
        ends = _ends(bench, topic)
        facts = {
            "records_of_A": RECORDS,
            "moved": f"{STATES}-{number}" if moved else "",
            "shortest_log_of_A": min(ends),
            "log_of_A_at_the_end": ends[-1],
            "states_at_the_end": dict(back.states()),
        }
    return Observation(shown=min(ends) < RECORDS, facts=facts)


def _ends(bench: Bench, topic: str) -> list[int]:
    """Where A's log ended, from its bytes, until it has the records that were written at B. Raises
    DeadlineExceeded if it neither gets them nor is ever shorter: then nothing is known."""
    ends: list[int] = []

    def followed() -> bool:
        ends.append(bench.log_end(topic))
        return ends[-1] >= RECORDS + OF_B

    try:
        wait_for("A to follow B", followed, every=0.02)
    except DeadlineExceeded:
        if min(ends) >= RECORDS:
            raise
    return ends


STATE_PARTITIONS: Final = 3
STATES_WATCHED: Final = 10.0
"""Seconds for which the logs of B's leaders are watched: brokers look after theirs every two."""


@case(
    "KIP-1279-states-moved",
    parse("A->B:3"),
    claim={"move": True},
    control={"move": False},
)
def states_moved(bench: Bench, *, move: bool) -> Observation:
    """A, the link and the leaders of the mirrored partitions are untouched."""
    topic = bench.topic(partitions=STATE_PARTITIONS)
    for number in range(STATE_PARTITIONS):
        bench.write(topic, [b"%d" % n for n in range(RECORDS)], number)
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(STATE_PARTITIONS)
        for number in range(STATE_PARTITIONS):
            bench.ends_at(RECORDS, topic, number)
        shortest = dict.fromkeys(range(STATE_PARTITIONS), RECORDS)

        def truncated() -> bool:
            leaders = wire.answered(bench.bootstrap("B").split(",")[0], topic)
            for number, one in leaders.items():
                end = bench.log_end(topic, number, broker=one.leader, cluster="B")
                shortest[number] = min(shortest[number], end)
            return min(shortest.values()) < RECORDS

        if move:
            _moved(bench)
        happens("a leader's log to be shorter", truncated, within=STATES_WATCHED)
        facts = {
            "mirrored": RECORDS,
            "shortest_logs_of_leaders": {str(number): end for number, end in shortest.items()},
            "states_at_the_end": dict(mirror.states()),
        }
    return Observation(shown=min(shortest.values()) < RECORDS, facts=facts)


def _moved(bench: Bench) -> None:
    """Every partition of the log of states is led by the next broker."""
    asked = bench.ask(bench.up("B"))
    for number, now in sorted(asked.leadership(STATES).items()):
        bench.lead(STATES, number, bench.broker(1 + now.leader % 3, "B"), "B")
