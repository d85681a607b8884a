"""MirrorMaker 2 that cannot start or fails in part, and what the run records of it."""

from __future__ import annotations

import time
from typing import cast
from unittest.mock import patch

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from linkflap.harness.mirrors import mm2, mm2_config
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet
from tests.events import Rows
from tests.mm2_pair import mirrored
from tests.shadows import TOPIC, drained

pytestmark = pytest.mark.linkflap(topology="A->B")


def states(events: Rows) -> dict[tuple[str, int], list[str]]:
    """(connector, task) -> the recorded states."""
    found: dict[tuple[str, int], list[str]] = {}
    for kind, _, data in events:
        if kind == "mirror-state":
            at = cast(tuple[str, int], (data["connector"], data["task"]))
            found.setdefault(at, []).append(str(data["state"]))
    return found


def what_fails_is_written_down(deployment: Deployment) -> None:
    """A connector that cannot start (Java refuses its pattern), and a task that fails later (B
    refuses a record as too large).

    That pattern is refused before a start, so here nobody looks at it but Java.
    """
    with (
        patch.object(mm2_config, "reason_against", return_value=""),
        mirrored(deployment, groups="(?<a>x)(?<a>y)") as (mirror, writer, events),
    ):
        writer.write(1)
        drained(mirror)
        assert states(events)["MirrorCheckpointConnector", -1][-1] == "FAILED"
        assert states(events)["MirrorSourceConnector", 0][-1] == "RUNNING"
        (trace,) = [
            data["trace"]
            for kind, _, data in events
            if kind == "mirror-state" and data["state"] == "FAILED"
        ]
        assert "PatternSyntaxException" in str(trace).splitlines()[0]
        limit = [
            ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
        ]
        admin = AdminClient(quiet(deployment.clusters["B"].bootstrap))
        limited = [ConfigResource("TOPIC", TOPIC, incremental_configs=limit)]
        large = Producer(quiet(deployment.clusters["A"].bootstrap))

        tries = 0.0

        def failed() -> bool:
            # Releases before 4.0 sync every setting of the topic, and take the limit off again. One
            # record at a time: of a batch of several 3.9.2 splits and sends the halves for ever,
            # until its thread has no stack left (KAFKA-8350).
            nonlocal tries
            if time.monotonic() > tries and mirror.lag() == 0:
                tries = time.monotonic() + 10
                (done,) = admin.incremental_alter_configs(limited).values()
                done.result(30)
                large.produce(TOPIC, bytes(100_000), partition=0)
                assert not large.flush(30)
            return any(t >= 0 and state[-1] == "FAILED" for (_, t), state in states(events).items())

        until(
            failed,
            within=60,
            every=0.5,
            what="the task to fail and its state to be written down",
            state=lambda: (mirror.lag(), states(events)),
        )
        assert any("RecordTooLargeException" in str(data.get("trace", "")) for _, _, data in events)
        mirror.stop()
        assert events[-1][2] == {"drained": False}


def test_a_connector_and_a_task_that_fail_are_written_down(linkflap_deployment: Deployment) -> None:
    what_fails_is_written_down(linkflap_deployment)


@pytest.mark.nightly
@pytest.mark.linkflap(topology="A@3.9.2->B@3.9.2")
def test_those_of_an_older_release_are_too(linkflap_deployment: Deployment) -> None:
    what_fails_is_written_down(linkflap_deployment)


@pytest.mark.nightly
def test_a_mirror_that_cannot_start_says_what_it_saw(
    linkflap_deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mm2, "START_SECONDS", 15.0)
    linkflap_deployment.links["A->B"].cut()
    with (
        pytest.raises(
            DeadlineExceeded, match=r"mm2 on A->B did not start: .*worker alive.*its log ends:\n.+"
        ),
        mirrored(linkflap_deployment),
    ):
        pass
