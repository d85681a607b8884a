"""From findings to the verdict: what is invalid, what unknown, what allowed, and what the document says."""

import re

import msgspec
import pytest
from histories import SECOND

from linkflap.harness.model.clock import now
from linkflap.harness.model.history import Bounds, Fetched, Operation, Poll, SendGroup, Watermark
from linkflap.harness.model.scenario import FaultSpec, Minimums, MirrorSpec, Scenario, WorkloadSpec, clients
from linkflap.harness.model.verdict import Verdict
from linkflap.harness.rundir import Run, RunReader, RunWriter
from linkflap.harness.workloads.crew import Names
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.read.failed_mirror_parts import failed_parts
from linkflap.spark_verify.spark.finding_rows import FindingRow
from linkflap.spark_verify.verdict.judge import judge
from linkflap.spark_verify.verdict.shown import EXAMPLES
from linkflap.topologies import parse
from tests.events import event

LINK = "A->B"


def scenario(**rest):
    given = {
        "name": "test", "about": "", "seed": 5, "topology": parse(LINK),
        "mirror": MirrorSpec(kind="mm2", options={"delivery": "at-least-once"}),
        "workloads": (WorkloadSpec(kind="transactional", home="A"),), "schedule": (),
    }  # fmt: skip
    return Scenario(**given | rest)


class Recorded:
    """A run directory that is whole: a commit, an abort, a read; and whatever a test adds."""

    def __init__(self, folder, **rest):
        self.folder = folder
        self.writer = RunWriter(
            folder,
            Run(
                format=1, linkflap="0", command="", runtime="process", status="running", started=now(), ended=0,
                scenario=scenario(**rest),
            ),
        )  # fmt: skip
        self.operations, self.polls = self.writer.operations("client"), self.writer.polls("reader")
        self.writer.watermarks("A").write(
            Watermark(
                time=now(),
                returned=now(),
                cluster="A",
                leader=1,
                topic="A.t",
                partition=0,
                log_start=0,
                last_stable=1,
                high_watermark=1,
            )
        )

    def event(self, kind, subject, /, **data):
        """An event, of which a test says what it cares about."""
        return self.writer.write(event(kind, subject, **data))

    def read(self, kind, reader, *, cluster="A", group="", partition=0):
        """A row of a reader, who is at offset 3."""
        here = (Fetched(topic="A.t", partition=partition, position=3),)
        row = {"reader": reader, "process": 3, "cluster": cluster, "isolation": "read_committed", "group": group}
        self.polls.write(Poll(time=now(), returned=now(), kind=kind, fetched=here if kind != "error" else (), **row))

    def fault(self, name="f", *, bit=True, healed=True, fault="mirror-kill", target=LINK):
        self.event("fault-start", target, id=name, fault=fault, restores=True, options={})
        self.event("fault-bite", target, id=name, bit=bit, observable="worker", measured="alive", expected="dead")
        self.event("fault-heal", target, id=name, healed=healed, checked=[])
        self.event("fault-end", target, id=name)

    def close(self, *, commits=1, aborts=1, reads=1, status="finished"):
        for number in range(commits + aborts):
            for phase in ("invoke", "return"):
                self.operations.write(
                    Operation(
                        number=number,
                        phase=phase,
                        time=now(),
                        client="client",
                        process=1,
                        cluster="A",
                        kind="transaction",
                        ending="commit" if number < commits else "abort",
                        outcome="ok",
                        sends=(SendGroup(topic="A.t", partition=0, first_uid=number, count=1),),
                    )
                )
        if reads:
            self.polls.write(
                Poll(
                    time=now(),
                    returned=now(),
                    reader="reader",
                    process=2,
                    cluster="A",
                    isolation="read_committed",
                    kind="poll",
                    fetched=(Fetched(topic="A.t", partition=0, runs=((1, 0, reads),), position=reads),),
                )
            )
        self.writer.write_bounds("end", [self._bounds(cluster) for cluster in "AB"])
        self.writer.close(status)
        return self.folder

    @staticmethod
    def _bounds(cluster):
        return Bounds(
            cluster=cluster, broker=1, topic="A.t", partition=0, leader=True, alive=True, log_start=0, high_watermark=0,
            high_watermark_from="sampled",
        )  # fmt: skip


@pytest.fixture
def recorded(tmp_path):
    return Recorded(tmp_path / "run")


def row(folder, check, finding, **rest):
    data = rest.pop("data", {})
    return FindingRow(
        run=str(folder), topic=rest.pop("topic", "A.t"), partition=0, check=check, finding=finding, data=data, **rest
    )


def looked(folder, *checks):
    """Findings of checks that looked everywhere and found nothing."""
    where = (("A", "native"), ("B", "mirrored"))
    return [row(folder, c, "examined", cluster=cluster, origin=origin, count=3) for c in checks for cluster, origin in where]


def result(judgement, name):
    return next(c for c in judgement.checks if c.name == name)


def verdict_of(folder, rows, *names):
    return judge(folder, rows, [REGISTRY[name] for name in names])


def test_nothing_found_is_valid(recorded):
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert judgement.verdict is Verdict.VALID, judgement.document["reason"]
    assert result(judgement, "duplicate").examined == {"A/native": 3, "B/mirrored": 3}


def test_a_violation_is_invalid_whatever_else_is_unknown(recorded):
    folder = recorded.close(commits=0)
    found = row(folder, "duplicate", "found", cluster="A", kind="duplicate", offset=4)
    judgement = verdict_of(folder, [*looked(folder, "duplicate"), found], "duplicate")
    assert judgement.verdict is Verdict.INVALID
    assert result(judgement, "duplicate").reason == "1 duplicate"
    assert result(judgement, "recording").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("finding", ["unjudged", "crashed"])
def test_what_could_not_be_judged_is_unknown(recorded, finding):
    folder = recorded.close()
    rows = [*looked(folder, "duplicate"), row(folder, "duplicate", finding, data={"reason": "because"})]
    judgement = verdict_of(folder, rows, "duplicate")
    assert judgement.verdict is Verdict.UNKNOWN
    assert "because" in result(judgement, "duplicate").reason


def test_nothing_examined_where_something_was_due_is_unknown(recorded):
    folder = recorded.close()
    rows = [r for r in looked(folder, "duplicate") if r.origin == "native"]
    judgement = verdict_of(folder, rows, "duplicate")
    assert (judgement.verdict, result(judgement, "duplicate").reason) == (
        Verdict.UNKNOWN,
        "no mirrored records of B were there to examine",
    )


def test_after_a_promotion_native_records_of_the_destination_are_due(recorded):
    recorded.event("failover", LINK, kind="forced", fault_time=now())
    recorded.event("promotion", LINK, cluster="B", topic="A.t", partition=0, offset=3)
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "ghost-ack"), "ghost-ack")
    assert result(judgement, "ghost-ack").reason == "no native acknowledgements of B were there to examine"


def test_an_empty_history_is_unknown(recorded):
    folder = recorded.close(commits=0, aborts=0, reads=0)
    judgement = verdict_of(folder, [], *REGISTRY)
    assert judgement.verdict is Verdict.UNKNOWN
    assert "the history is empty" in result(judgement, "recording").reason
    assert result(judgement, "lost-write").verdict is Verdict.UNKNOWN


def test_less_than_the_scenario_asks_for_is_unknown(tmp_path):
    folder = Recorded(tmp_path / "run", minimums=Minimums(committed=2, aborted=1, reads=5)).close(commits=1, reads=4)
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    reason = result(judgement, "recording").reason
    assert "only 1 transactions committed, the scenario asks for 2" in reason
    assert "only 4 records read" in reason


@pytest.mark.parametrize("status", ["interrupted", "failed", "running"])
def test_a_run_that_did_not_finish_is_unknown(recorded, status):
    folder = recorded.close(status=status)
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert judgement.verdict is Verdict.UNKNOWN


def test_of_a_killed_run_the_first_reason_is_that_it_was_killed(recorded):
    folder = recorded.close(status="running")
    (folder / "manifest.json").unlink()
    damage = FindingRow(run=str(folder), topic="", partition=-1, check="", finding="damage", data={"path": "x", "reason": "torn"})
    unjudged = row(folder, "duplicate", "unjudged", data={"reason": "no log of A was captured"})
    judgement = verdict_of(folder, [damage, unjudged], "duplicate")
    reason = str(judgement.document["reason"])
    assert reason.startswith("recording: run.json: the run never ended: its harness was killed, or it still runs; ")
    assert "duplicate: no log of A was captured" in reason


def test_a_missing_file_is_unknown(recorded):
    folder = recorded.close()
    (folder / "polls" / "reader.jsonl").unlink()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert judgement.verdict is Verdict.UNKNOWN
    assert "polls/reader.jsonl" in result(judgement, "recording").reason


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (r'"destination": "B"', '"destination": "Q"', "run.json: its link A->Q names Q, which is no cluster of its topology"),
        (r'"started": \d+', '"started": 1' + 30 * "0", "run.json: started is 1e+30 ns after 1970, when no run was"),
        (r'"ended": \d+', '"ended": -7', "run.json: ended is -7 ns after 1970, when no run was"),
    ],
)
def test_what_no_run_can_have_had_is_unknown(recorded, old, new, said):
    folder = recorded.close()
    path = folder / "run.json"
    text, changed = re.subn(old, new, path.read_text())
    assert changed
    path.write_text(text)
    assert said in result(verdict_of(folder, [], "duplicate"), "recording").reason


def test_of_missing_files_those_that_are_judged_come_first(recorded):
    folder = recorded.close()
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=dict[str, int])
    segments = [f"captures/1/A/1/{topic}-0/0.log" for topic in ("__consumer_offsets", "__transaction_state", "A.t")]
    gone = dict.fromkeys(segments, -1) | {f"captures/1/A/1/__x-{n}/0.log": -1 for n in range(9)}
    (folder / "manifest.json").write_bytes(msgspec.json.encode(gone | manifest))
    (folder / "polls" / "reader.jsonl").unlink()
    reason = result(verdict_of(folder, looked(folder, "duplicate"), "duplicate"), "recording").reason
    assert [said.partition(":")[0] for said in reason.split("; ")[:2]] == ["polls/reader.jsonl", segments[2]]


def test_damage_that_the_tables_met_is_unknown(recorded):
    folder = recorded.close()
    damage = FindingRow(run=str(folder), topic="", partition=-1, check="", finding="damage", data={"path": "x", "reason": "torn"})
    judgement = verdict_of(folder, [*looked(folder, "duplicate"), damage], "duplicate")
    assert result(judgement, "recording").reason == "x: torn"


@pytest.mark.parametrize(
    ("gone", "check", "kind", "verdict"),
    [
        ("events.jsonl", "duplicate", "duplicate", Verdict.UNKNOWN),
        ("events.jsonl", "replica-agreement", "corrupt-batch", Verdict.INVALID),
        ("operations/client.jsonl", "lost-write", "lost-write", Verdict.UNKNOWN),
        ("operations/client.jsonl", "duplicate", "duplicate", Verdict.INVALID),
        ("polls/reader.jsonl", "read-committed-visibility", "hidden-committed", Verdict.UNKNOWN),
        ("polls/reader.jsonl", "order-equality", "mirror-hole", Verdict.INVALID),
    ],
)
def test_an_anomaly_that_a_missing_part_could_have_made_up_proves_nothing(recorded, gone, check, kind, verdict):
    folder = recorded.close()
    (folder / gone).unlink()
    rows = [*looked(folder, check), row(folder, check, "found", cluster="A", kind=kind, offset=4)]
    checked = result(verdict_of(folder, rows, check), check)
    assert (checked.verdict, checked.anomalies) == (verdict, 1)
    assert kind in checked.reason
    assert (gone in checked.reason) == (verdict is Verdict.UNKNOWN)


def group_failed_over(tmp_path, *states):
    """A run whose group followed a failover; `states` of its mirror's connectors came before."""
    readers = WorkloadSpec(kind="readers", home="A", options={"group": "g"})
    run = Recorded(tmp_path / "run", workloads=(WorkloadSpec(kind="transactional", home="A"), readers))
    for connector, task, state, trace in states:
        run.event("mirror-state", LINK, connector=connector, task=task, state=state, trace=trace)
    run.event("failover", LINK, kind="forced", fault_time=now())
    run.event("promotion", LINK, cluster="B", topic="A.t", partition=0, offset=3)
    run.event("clients-moved", "A", to="B")
    run.read("drained", "readers-1", cluster="B", group="g")
    return run.close()


NEVER_SAMPLED = "no committed offset of a group was ever sampled on A, so how far groups were there is unknown"
NEVER_SYNCED = "no committed offset of a group was seen on B before the failover: the mirror had synced none"


@pytest.mark.parametrize(
    ("looked_at", "verdict", "reason"),
    [
        ((), Verdict.UNKNOWN, f"{NEVER_SAMPLED}; no mirrored records of B were there to examine"),
        ((("B", "mirrored"),), Verdict.UNKNOWN, NEVER_SAMPLED),
        ((("B", "mirrored"), ("A", "checkpoints")), Verdict.VALID, NEVER_SYNCED),
        ((("B", "mirrored"), ("A", "checkpoints"), ("B", "checkpoints")), Verdict.VALID, ""),
    ],
)
def test_a_group_that_failed_over_and_was_not_sampled_is_unknown(tmp_path, looked_at, verdict, reason):
    folder = group_failed_over(tmp_path)
    rows = [row(folder, "group-offsets", "examined", cluster=c, origin=o, count=2) for c, o in looked_at]
    checked = result(verdict_of(folder, rows, "group-offsets"), "group-offsets")
    assert (checked.verdict, checked.reason) == (verdict, reason)
    assert checked.examined == {f"{c}/{o}": 2 for c, o in sorted(looked_at)}


CHECKPOINTS, SOURCE = "MirrorCheckpointConnector", "MirrorSourceConnector"
TRACE = "java.util.regex.PatternSyntaxException: Unclosed character class near index 0\n\tat java.base/java.util.regex.Pattern"
FAILED = (CHECKPOINTS, -1, "FAILED", TRACE)


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ([FAILED], f"{CHECKPOINTS} of the mirror of A->B failed: java.util.regex.PatternSyntaxException: Unclosed"),
        ([FAILED, (CHECKPOINTS, -1, "UNASSIGNED", "")], f"{CHECKPOINTS} of the mirror of A->B failed: java.util.regex"),
        ([(CHECKPOINTS, 0, "FAILED", TRACE)], f"task 0 of {CHECKPOINTS} of the mirror of A->B failed: java.util.regex"),
        ([(CHECKPOINTS, -1, "PAUSED", "")], f"{CHECKPOINTS} of the mirror of A->B was paused"),
        ([(CHECKPOINTS, -1, "STOPPED", "")], f"{CHECKPOINTS} of the mirror of A->B was stopped"),
        (
            [(CHECKPOINTS, -1, "NONE", "started\nno such class")],
            f"{CHECKPOINTS} of the mirror of A->B never had a state: no such",
        ),
    ],
)
@pytest.mark.parametrize("synced", [False, True])
def test_a_connector_of_groups_that_failed_makes_what_was_synced_unknown(tmp_path, states, why, synced):
    folder = group_failed_over(tmp_path, *states)
    where = [("B", "mirrored"), ("A", "checkpoints"), *([("B", "checkpoints")] if synced else [])]
    rows = [row(folder, "group-offsets", "examined", cluster=c, origin=o, count=2) for c, o in where]
    checked = result(verdict_of(folder, rows, "group-offsets"), "group-offsets")
    assert checked.verdict is Verdict.UNKNOWN
    assert f"offsets of groups were not carried to B from then on: {why}" in checked.reason
    assert "\tat" not in checked.reason


@pytest.mark.parametrize(
    "states",
    [
        [FAILED, (CHECKPOINTS, -1, "RUNNING", "")],
        [(CHECKPOINTS, -1, "RUNNING", "")],
        [(SOURCE, 0, "FAILED", TRACE)],  # of partitions, not of groups
    ],
)
def test_a_connector_that_runs_again_and_one_of_something_else_say_nothing_of_groups(tmp_path, states):
    folder = group_failed_over(tmp_path, *states)
    rows = [row(folder, "group-offsets", "examined", cluster=c, origin=o, count=2) for c, o in EVERYWHERE]
    assert result(verdict_of(folder, rows, "group-offsets"), "group-offsets").verdict is Verdict.VALID


EVERYWHERE = [("B", "mirrored"), ("A", "checkpoints"), ("B", "checkpoints")]


def test_what_failed_is_named_where_nothing_was_mirrored(recorded):
    recorded.event("mirror-state", LINK, connector=SOURCE, task=0, state="FAILED", trace="RecordTooLargeException: 2 of 1\n\tat")
    recorded.event("mirror-stopped", LINK, drained=False)
    folder = recorded.close()
    rows = [row(folder, "duplicate", "examined", cluster="A", origin="native", count=2)]
    judgement = verdict_of(folder, rows, "duplicate")
    why = f"task 0 of {SOURCE} of the mirror of A->B failed: RecordTooLargeException: 2 of 1"
    assert result(judgement, "duplicate").reason == f"no mirrored records of B were there to examine; {why}"
    assert result(judgement, "recording").reason == f"the mirror of A->B had not caught up when the run ended; {why}"


def test_a_worker_that_was_killed_takes_its_states_with_it_and_a_dead_source_counts_for_nothing():
    def at(time, kind, **data):
        return event(kind, LINK, at=time, **data)

    def failed(time, task):
        return at(time, "mirror-state", connector=SOURCE, task=task, state="FAILED", trace="why")

    assert [part.task for part in failed_parts([failed(1, 0), failed(2, 1)])] == [0, 1]
    assert [part.task for part in failed_parts([failed(1, 0), at(2, "mirror-crashed"), failed(3, 1)])] == [1]
    assert [part.task for part in failed_parts([failed(1, 0), at(5, "failover", fault_time=4), failed(6, 1)])] == [0]


def test_a_failover_that_was_scheduled_and_promoted_nothing_is_unknown(tmp_path):
    planned = FaultSpec(id="f", fault="failover-forced", target=LINK, at=1.0, duration=0.0)
    folder = Recorded(tmp_path / "run", schedule=(planned,)).close()
    checked = result(verdict_of(folder, [], "failover"), "failover")
    assert (checked.verdict, checked.reason) == (Verdict.UNKNOWN, "no native promotions of B were there to examine")


@pytest.mark.parametrize(
    ("how", "reason"),
    [({"bit": False}, "did not bite: worker was alive, expected dead"), ({"healed": False}, "was not seen to be healed")],
)
def test_a_fault_without_effect_or_heal_is_unknown(recorded, how, reason):
    recorded.fault(**how)
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert judgement.verdict is Verdict.UNKNOWN
    assert reason in result(judgement, "fault-bite").reason


def test_faults_that_bit_are_valid(recorded):
    recorded.fault()
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert (judgement.verdict, result(judgement, "fault-bite").examined) == (Verdict.VALID, {"run/faults": 1})


def test_a_scheduled_fault_that_never_started_is_unknown(tmp_path):
    planned = FaultSpec(id="f9", fault="link-cut", target=LINK, at=1.0, duration=1.0)
    folder = Recorded(tmp_path / "run", schedule=(planned,)).close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert result(judgement, "fault-bite").reason == "fault f9 was scheduled and never started"


def test_nothing_read_after_a_fault_is_unknown(tmp_path):
    run = Recorded(tmp_path / "run")
    run.event("fault-start", LINK, id="f", fault="link-cut", restores=False)
    run.event("fault-bite", LINK, id="f", bit=True)
    folder = run.close(reads=0)
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert "no reader got anything after fault f" in result(judgement, "recording").reason


@pytest.mark.parametrize(
    ("drained", "failover", "lagging"),
    [(False, None, True), (True, None, False), (False, ("A->B", "planned"), False), (False, ("C->B", "forced"), True)],
)
def test_a_mirror_that_stood_still_to_the_end_is_unknown(recorded, drained, failover, lagging):
    recorded.event("mirror-stopped", LINK, drained=drained)
    if failover:
        recorded.event("failover", failover[0], kind=failover[1])
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert ("the mirror of A->B had not caught up" in result(judgement, "recording").reason) == lagging


def test_a_topic_that_a_mirror_gave_up_is_unknown(recorded):
    recorded.event("topic-given-up", LINK, topic="A.t", reason="topic A.t was deleted on the destination of A->B")
    folder = recorded.close()
    checked = result(verdict_of(folder, looked(folder, "duplicate"), "duplicate"), "recording")
    assert checked.verdict is Verdict.UNKNOWN
    assert checked.reason == "the mirror of A->B gave a topic up: topic A.t was deleted on the destination of A->B"


def test_a_mirror_whose_source_was_given_up_need_not_catch_up(tmp_path):
    recorded = Recorded(tmp_path / "run", topology=parse("A->B, A->C"))
    recorded.event("promotion", "A->C", cluster="C", topic="A.t", partition=0, offset=3)
    recorded.event("failover", "A->C", kind="forced")
    recorded.event("mirror-stopped", LINK, drained=False)
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate")
    assert result(judgement, "recording").reason == "captures: cluster C is in no finished capture", "and nothing of A->B"


def repeated(folder, written_at):
    evidence = {"copy": 1, "first_written": [written_at, written_at], "written": [written_at, written_at + SECOND]}
    return row(folder, "duplicate", "found", cluster="B", kind="mirrored-duplicate", offset=1, data=evidence)


def test_a_check_that_had_nothing_to_look_at_says_so(recorded):
    folder = recorded.close()
    checked = result(verdict_of(folder, [], "group-offsets"), "group-offsets")
    assert (checked.verdict, checked.reason) == (
        Verdict.NOT_DUE,
        "nothing to examine: of records, due are those mirrored to where a group fails over, if the mirror carries its offsets",
    )


def test_what_was_not_due_counts_neither_way(recorded):
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "duplicate"), "duplicate", "group-offsets")
    assert result(judgement, "group-offsets").verdict is Verdict.NOT_DUE
    assert judgement.verdict is Verdict.VALID


def test_a_run_in_which_nothing_was_due_is_unknown(recorded):
    folder = recorded.close()
    judgement = verdict_of(folder, [], "group-offsets", "byte-equality")
    assert {c.verdict for c in judgement.checks[:2]} == {Verdict.NOT_DUE}
    assert (judgement.verdict, judgement.verdict.exit_code) == (Verdict.UNKNOWN, 2)
    assert judgement.document["reason"] == "nothing was due: no check had anything to examine"


def test_the_document_explains_every_era(tmp_path):
    run = Recorded(tmp_path / "run")
    run.event("failover", LINK, kind="forced", fault_time=now())
    run.event("promotion", LINK, cluster="B", topic="A.t", partition=0, offset=3)
    folder = run.close()
    rows = [
        row(folder, "duplicate", "examined", cluster="A", origin="native", count=5, offset=0, data={"generation": 0}),
        row(folder, "duplicate", "examined", cluster="B", origin="mirrored", count=3, offset=0, data={"generation": 0}),
        row(folder, "duplicate", "examined", cluster="B", origin="native", count=2, offset=3, data={"generation": 0}),
        row(folder, "duplicate", "found", cluster="B", kind="duplicate", offset=4),
    ]
    eras = verdict_of(folder, rows, "duplicate").document["eras"]
    shown = [(e["cluster"], e["origin"], e["start"], e["end"], e["compared"], e["anomalies"], e["verdict"]) for e in eras]
    assert shown == [
        ("A", "native", 0, None, {"records": 5}, 0, "valid"),
        ("B", "mirrored", 0, 3, {"records": 3}, 0, "valid"),
        ("B", "native", 3, None, {"records": 2}, 1, "invalid"),
    ]


def test_an_allowed_anomaly_is_counted_and_leaves_the_check_valid(recorded):
    recorded.fault()
    folder = recorded.close()
    judgement = verdict_of(folder, [*looked(folder, "duplicate"), repeated(folder, now())], "duplicate")
    checked = result(judgement, "duplicate")
    assert (checked.verdict, checked.anomalies, checked.allowed) == (Verdict.VALID, 0, 1)
    (shown,) = judgement.document["anomalies"]
    assert shown["allowed"] is True
    assert "mirror-kill (f)" in shown["evidence"]["why"]


def test_the_same_anomaly_without_a_fault_is_invalid(recorded):
    folder = recorded.close()
    judgement = verdict_of(folder, [*looked(folder, "duplicate"), repeated(folder, now())], "duplicate")
    assert result(judgement, "duplicate").verdict is Verdict.INVALID


def test_examples_are_capped_and_counts_are_not(recorded):
    folder = recorded.close()
    many = [row(folder, "duplicate", "found", cluster="A", kind="duplicate", offset=i) for i in range(EXAMPLES + 5)]
    judgement = verdict_of(folder, [*looked(folder, "duplicate"), *many], "duplicate")
    assert len(judgement.document["anomalies"]) == EXAMPLES
    assert judgement.document["anomalies_left_out"] == 5
    assert result(judgement, "duplicate").anomalies == EXAMPLES + 5
    assert [a["offset"] for a in judgement.document["anomalies"]] == list(range(EXAMPLES))


def failed_over(folder, *, partition_writes, fault_time=100 * SECOND):
    return [
        row(
            folder, "failover", "partial", cluster="B", offset=3,
            data={"link": LINK, "kind": "forced", "fault_time": fault_time, "rpo_records": 2, "first_write": write},
        )
        for write in partition_writes
    ]  # fmt: skip


def test_failovers_are_added_up_over_partitions(recorded):
    folder = recorded.close()
    judgement = verdict_of(folder, failed_over(folder, partition_writes=[None, 104 * SECOND, 103 * SECOND]), "failover")
    (row,) = judgement.document["failovers"]
    assert [row[name] for name in ("link", "kind", "promoted", "rpo_records", "rto_seconds")] == [LINK, "forced", 3, 6, 3.0]
    assert [each["rto_seconds"] for each in row["partitions"]] == [None, 4.0, 3.0]
    assert result(judgement, "failover").verdict is Verdict.NOT_DUE, "no promotion was recorded in this run"


def test_a_failover_after_which_nothing_was_written_is_unknown(recorded):
    folder = recorded.close()
    judgement = verdict_of(folder, failed_over(folder, partition_writes=[None]), "failover")
    assert judgement.failovers[0].rto_seconds is None
    assert result(judgement, "failover").verdict is Verdict.UNKNOWN


def test_a_failover_that_promoted_nothing_is_unknown(recorded):
    recorded.event("failover", LINK, kind="forced", fault_time=1)
    folder = recorded.close()
    assert "promoted no partition" in result(verdict_of(folder, [], "failover"), "failover").reason


def test_a_host_that_stood_still_makes_time_based_checks_unknown(recorded):
    recorded.event("host-stall", "host", seconds=4.5)
    folder = recorded.close()
    judgement = verdict_of(folder, looked(folder, "last-stable-offset", "duplicate"), "last-stable-offset", "duplicate")
    assert result(judgement, "last-stable-offset").verdict is Verdict.UNKNOWN
    assert result(judgement, "duplicate").verdict is Verdict.VALID


def test_the_document_is_what_the_design_promises(recorded):
    folder = recorded.close()
    found = row(folder, "duplicate", "found", cluster="A", kind="duplicate", offset=4, data={"uid": 7, "first_offset": 2})
    document = verdict_of(folder, [*looked(folder, "duplicate"), found], "duplicate").document
    assert {"verdict", "run", "seed", "scenario", "runtime", "mirror", "checks", "failovers", "anomalies"} <= set(document)
    assert (document["seed"], document["scenario"], document["runtime"]) == (5, "test", "process")
    assert document["mirror"] == "mm2 delivery=at-least-once"
    assert {"name", "verdict", "examined", "anomalies", "reason"} <= set(document["checks"][0])
    assert document["anomalies"] == [
        {
            "check": "duplicate", "kind": "duplicate", "cluster": "A", "topic": "A.t", "partition": 0, "offset": 4,
            "allowed": False, "cause": 1, "sentence": "A has producer 0 #7 at A.t-0 @ 4 again, first at offset 2",
            "evidence": {"uid": 7, "first_offset": 2},
        }
    ]  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(document)) == document


def test_the_whole_directory_is_read_once_it_is_closed(recorded):
    folder = recorded.close()
    assert RunReader(folder).damage() == []


def followed(tmp_path):
    """A run in which A was made to follow B."""
    reverse = FaultSpec(id="r", fault="mirror-reverse", target=LINK, at=1.0, duration=0.0)
    run = Recorded(tmp_path / "run", mirror=MirrorSpec(kind="shadow"), schedule=(reverse,))
    run.event("promotion", LINK, cluster="B", topic="A.t", partition=0, offset=3)
    run.event("failover", LINK, kind="forced", fault_time=now())
    run.fault("r", fault="mirror-reverse")
    run.event("mirror-started", "B->A", mirror="shadow", options={}, seconds=1.0)
    return run.close()


def everywhere(folder, check, *, mirrored_to_a):
    where = [("A", "native"), ("B", "mirrored"), ("B", "native"), *([("A", "mirrored")] if mirrored_to_a else [])]
    return [row(folder, check, "examined", cluster=cluster, origin=origin, count=3) for cluster, origin in where]


def test_what_came_back_must_have_been_compared(tmp_path):
    folder = followed(tmp_path)
    checked = result(verdict_of(folder, everywhere(folder, "byte-equality", mirrored_to_a=False), "duplicate"), "duplicate")
    assert checked.verdict is Verdict.UNKNOWN
    rows = everywhere(folder, "duplicate", mirrored_to_a=False)
    checked = result(verdict_of(folder, rows, "duplicate"), "duplicate")
    assert (checked.verdict, checked.reason) == (Verdict.UNKNOWN, "no mirrored records of A were there to examine")
    rows = everywhere(folder, "duplicate", mirrored_to_a=True)
    assert result(verdict_of(folder, rows, "duplicate"), "duplicate").verdict is Verdict.VALID


def test_nobody_has_to_read_where_a_cluster_follows_and_it_is_said(tmp_path):
    folder = followed(tmp_path)
    rows = everywhere(folder, "aborted-read", mirrored_to_a=False)
    checked = result(verdict_of(folder, rows, "aborted-read"), "aborted-read")
    assert (checked.verdict, checked.reason) == (Verdict.VALID, "nobody read what was mirrored to A when it followed")


GROUP = WorkloadSpec(kind="readers", home="A", clients=2, options={"group": "g"})
FIXED = WorkloadSpec(kind="readers", home="A", options={"cluster": "B", "assign": True})
RELAY = WorkloadSpec(kind="relay", home="A")


def heard(tmp_path, *rows, moved=False, status="finished"):
    """What two members of a group, a reader of B and a relay wrote down; of A and B partition 0 was captured."""
    run = Recorded(tmp_path / "run", workloads=(WorkloadSpec(kind="transactional", home="A"), GROUP, FIXED, RELAY))
    if moved:
        run.event("clients-moved", "A", to="B")
    for kind, reader, cluster, group in rows:
        run.read(kind, reader, cluster=cluster, group=group)
    folder = run.close(status=status)
    names = ("aborted-read", "lost-write", "exactly-once", "duplicate")
    where = (("A", "native"), ("B", "mirrored"), ("A", "checkpoints"))
    rows = [row(folder, name, "examined", cluster=cluster, origin=origin, count=3) for name in names for cluster, origin in where]
    judgement = verdict_of(folder, rows, *names)
    return {name: result(judgement, name) for name in (*names, "recording")}


ASSIGNED = [("assign", "readers-1", "A", "g"), ("assign", "readers-2", "A", "g"), ("assign", "relay-1", "A", "r")]
TO_THE_END = [("drained", "readers-1", "A", "g"), ("drained", "readers-3", "B", "")]


def test_readers_that_read_to_the_end_leave_nothing_open(tmp_path):
    assert {r.verdict for r in heard(tmp_path, *ASSIGNED, *TO_THE_END).values()} == {Verdict.VALID}


@pytest.mark.parametrize(
    ("lost", "reader", "unknown"),
    [
        ("readers-3", "readers-3", {"aborted-read", "lost-write"}),
        ("readers-2", "readers-2", {"aborted-read", "lost-write"}),
        ("relay-1", "relay-1", {"aborted-read", "lost-write", "exactly-once"}),
    ],
)
def test_a_reader_that_left_no_row_is_named_by_all_that_rests_on_it(tmp_path, lost, reader, unknown):
    checked = heard(tmp_path, *(row for row in (*ASSIGNED, *TO_THE_END) if row[1] != lost), ("error", lost, "A", ""))
    said = f"missing: run.json names {reader}, and no row says what it read"
    assert {name for name, each in checked.items() if said in each.reason} == {*unknown, "recording"}
    assert {name for name, each in checked.items() if each.verdict is Verdict.UNKNOWN} == {*unknown, "recording"}


@pytest.mark.parametrize(
    ("rows", "moved", "said"),
    [
        (
            (*ASSIGNED, TO_THE_END[0], ("poll", "readers-3", "B", "")),
            False,
            "readers-3 ends in the middle: it never read A.t-0 of B",
        ),
        ((*ASSIGNED, TO_THE_END[1]), False, "readers-1 ends in the middle: it never read A.t-0 of A"),
        ((*ASSIGNED, *TO_THE_END), True, "readers-1 ends in the middle: it never read A.t-0 of B"),
    ],
    ids=["a reader of fixed partitions", "no member of a group", "a group that others left behind"],
)
def test_a_reader_that_ends_in_the_middle_is_unknown(tmp_path, rows, moved, said):
    checked = heard(tmp_path, *rows, moved=moved)
    assert {name for name, each in checked.items() if f"{said} to the end" in each.reason} == {"aborted-read", "recording"}
    assert {name for name, each in checked.items() if each.verdict is Verdict.UNKNOWN} == {"aborted-read", "recording"}


def test_of_a_run_that_was_broken_off_no_reader_is_asked(tmp_path):
    checked = heard(tmp_path, *ASSIGNED, status="interrupted")
    assert {name for name, each in checked.items() if each.verdict is Verdict.UNKNOWN} == {"recording"}


def test_clients_are_called_what_the_scenario_says():
    specs = (GROUP, RELAY, FIXED)
    names = Names()
    assert [name for name, _ in clients(specs)] == [names.next(s.kind) for s in specs for _ in range(s.clients)]
