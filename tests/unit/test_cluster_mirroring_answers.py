"""Responses to verbs: accepted, refused to the end, and accepted without effect."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from linkflap.harness.machine.java import Java
from linkflap.harness.mirrors.cluster_mirroring import logs, mirror, settings
from linkflap.harness.mirrors.cluster_mirroring.admin import (
    Answer,
    DescribeRow,
    MirrorAdmin,
    VerbRefused,
    mirroring,
    summary,
    until_accepted,
)
from linkflap.harness.model.errors import DeadlineExceeded, FaultError, SetupError
from linkflap.harness.model.events import Event, FailoverRefused, MirrorStopped
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.runtimes.distribution.kafka import Kafka


def row(partition: int = 0, state: str = "MIRRORING", **fields: str | int) -> DescribeRow:
    given: dict[str, Any] = {
        "source_offset": 10,
        "destination_offset": 10,
        "lag": 0,
        "retries": 0,
        "error": "",
        **fields,
    }
    return DescribeRow(topic="A.orders", partition=partition, state=state, **given)


def test_mirroring_means_a_row_of_every_partition_in_that_state() -> None:
    both = [("A.orders", 0), ("A.orders", 1)]
    assert mirroring([row(0), row(1)], both)
    assert not mirroring([row(0)], both), "rows may be missing"
    assert not mirroring(
        [row(0), row(1, "FAILED", error="Failed to get source metadata", lag=-1)], both
    )
    assert not mirroring([], [])


def test_states_are_summed_up_with_their_errors() -> None:
    rows = [
        row(0),
        row(1, "FAILED", error="Failed to get source metadata"),
        row(2, "FAILED", error="Failed to get source metadata"),
    ]
    assert summary(rows) == "2 FAILED, 1 MIRRORING; Failed to get source metadata"
    assert summary([]) == "no rows"


def refused(
    times: int, name: str = "INVALID_CLUSTER_MIRROR_STATES", code: int = 145
) -> Callable[[], None]:
    left = [VerbRefused("stop", name, code, "not in the expected states")] * times

    def ask() -> None:
        if left:
            raise left.pop()

    return ask


def test_a_verb_is_asked_again_until_it_is_accepted_and_what_was_refused_is_written_down() -> None:
    notes: list[Answer] = []
    answer = until_accepted("stop", refused(2), within=60, note=notes.append)
    assert notes == [answer]
    assert (answer.accepted, answer.tries, answer.refused) == (
        True,
        3,
        {"INVALID_CLUSTER_MIRROR_STATES (145)": 2},
    )


def test_a_verb_that_is_refused_to_the_end_says_with_what() -> None:
    notes: list[Answer] = []
    with pytest.raises(
        VerbRefused, match=r"stop was refused with INVALID_CLUSTER_MIRROR_STATES \(145\)"
    ):
        until_accepted("stop", refused(1000), within=0.1, note=notes.append)
    assert [n.accepted for n in notes] == [False]


def test_an_error_that_asking_again_cannot_change_is_raised_at_once() -> None:
    with pytest.raises(VerbRefused, match="ALREADY_EXISTS"):
        until_accepted(
            "create",
            refused(1, "CLUSTER_MIRROR_ALREADY_EXISTS", 136),
            within=60,
            note=print,
            never="CLUSTER_MIRROR_ALREADY_EXISTS",
        )


def stopping_mirror(monkeypatch: pytest.MonkeyPatch, *states: str) -> tuple[Any, list[Event]]:
    """A mirror whose stop is accepted, and whose partitions get no reset: describe reports these
    states."""
    made: Any = object.__new__(mirror.ClusterMirror)  # with stand-ins for its parts
    written: list[Event] = []
    monkeypatch.setattr(mirror, "STOP_SECONDS", 0.1)
    monkeypatch.setattr(logs, "every", lambda cluster, partitions: {})
    monkeypatch.setattr(made, "lag", lambda: 0, raising=False)
    rows = [row(n, state) for n, state in enumerate(states)]
    made.link, made._homes, made._destination = LinkSpec(source="A", destination="B"), ("A",), None
    made._recorder = SimpleNamespace(write=written.append)
    made._admin = SimpleNamespace(
        stop=lambda name, topics, patterns: None, describe=lambda name: rows
    )
    made._name, made._promoted, made._watching, made._stopping = (
        "A-B",
        False,
        None,
        threading.Lock(),
    )
    monkeypatch.setattr(
        made,
        "_destination_partitions",
        lambda: [("A.orders", n) for n in range(len(rows))],
        raising=False,
    )
    return made, written


def test_a_stop_that_is_accepted_and_takes_no_effect_is_a_failover_that_did_not_happen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, written = stopping_mirror(monkeypatch, "FAILED", "FAILED")
    with pytest.raises(FaultError, match=r"with ACCEPTED_WITHOUT_EFFECT \(0\)"):
        made.fail_over("forced")
    (found,) = (event for event in written if isinstance(event, FailoverRefused))
    assert (found.error, found.code, found.mode) == ("ACCEPTED_WITHOUT_EFFECT", 0, "forced")
    assert "2 FAILED" in (found.states or "")


def test_a_stop_that_is_still_under_way_is_not_said_to_be_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, written = stopping_mirror(monkeypatch, "STOPPED", "STOPPING")
    with pytest.raises(DeadlineExceeded):
        made.fail_over("forced")
    assert not [event for event in written if isinstance(event, FailoverRefused)]


def test_a_failback_that_never_mirrors_is_a_failover_that_did_not_happen_and_no_mirror_that_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, written = stopping_mirror(monkeypatch, "FAILED")

    def never(began: float) -> None:
        raise DeadlineExceeded(110.0, "every partition to be MIRRORING", "1 FAILED")

    made._there, made._source, made._reverses = None, SimpleNamespace(brokers={1: None}), object()
    made._running = made._mirrored = False
    made._options = settings.ClusterMirroringOptions(first_start=settings.AT_ONCE)
    made._admin.start = lambda name, topics, patterns: None
    made._destination = SimpleNamespace(brokers={})
    monkeypatch.setattr(mirror, "create", lambda admin, topics: None)
    monkeypatch.setattr(made, "_create", lambda: None, raising=False)
    monkeypatch.setattr(made, "_topics", lambda: {"A.orders": 1}, raising=False)
    monkeypatch.setattr(made, "_watch", lambda: logs.TruncationWatch({}, print), raising=False)
    monkeypatch.setattr(made, "_await_mirroring", never, raising=False)
    with pytest.raises(FaultError, match=r"refused for 120 s with NEVER_MIRRORED \(0\)"):
        made.start()
    (found,) = (event for event in written if isinstance(event, FailoverRefused))
    assert (found.mode, found.error, found.seconds) == ("planned", "NEVER_MIRRORED", 120.0)
    made.stop()
    assert not made.alive
    assert not [event for event in written if isinstance(event, MirrorStopped)]


def test_a_verb_that_the_java_admin_lacks_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class AdminWithoutResume:
        def close(self, wait: object) -> None: ...

    clients = SimpleNamespace(
        AdminClient=SimpleNamespace(create=lambda properties: AdminWithoutResume()),
        ResumeMirrorTopicsOptions=object,
    )
    apache = SimpleNamespace(kafka=SimpleNamespace(clients=SimpleNamespace(admin=clients)))
    duration = SimpleNamespace(time=SimpleNamespace(Duration=SimpleNamespace(ofMillis=int)))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=apache), java=duration)
    bridge = SimpleNamespace(java=jvm, properties=dict)
    asked = MirrorAdmin(
        cast(Kafka, SimpleNamespace()), cast(Java, SimpleNamespace()), tmp_path, "127.0.0.1:1"
    )
    monkeypatch.setattr(asked, "_open", lambda: bridge)
    with pytest.raises(SetupError, match=r"has no verb resume.*resumeMirrorTopics"):
        asked.resume("m", ["A.x"])
