"""A run directory as a run would leave it, without the run: three faults, a forced failover,
clients on both sides."""

from __future__ import annotations

from pathlib import Path

from linkflap.harness.model.history import (
    Bounds,
    Fetched,
    GroupOffset,
    Operation,
    Phase,
    Poll,
    SendGroup,
    Watermark,
)
from linkflap.harness.model.payload import PROCESS_SHIFT
from linkflap.harness.model.scenario import MirrorSpec, Scenario, WorkloadSpec
from linkflap.harness.model.topology import ClusterSpec, LinkSpec, Topology
from linkflap.harness.rundir import Appender, Run, RunWriter
from tests.run_copy import seal

START = 1_790_000_000_000_000_000
SECOND = 1_000_000_000
TOPIC = "A.orders"
ROW = GroupOffset(time=START, cluster="A", group="g", topic="A.t", partition=0, offset=1)
DIED = {
    "process": "clients-1",
    "time": START + 3 * SECOND,
    "by": "itself",
    "clients": ["transactional-1", "transactional-2"],
    "clusters": ["A"],
    "status": -6,
    "signal": "SIGABRT",
    "in_flight": [
        {"client": "transactional-2", "operation": 7, "kind": "transaction", "ending": "commit"}
    ],
    "last_words": ['Assertion "BUG: Invalid transaction state transition attempted" failed'],
    "again": True,
}
DONE = {
    "process": "command-1",
    "time": START + 3 * SECOND,
    "by": "itself",
    "clients": ["command-1"],
    "clusters": ["A"],
}
"""A command that ended with status 0."""
"""A client process that died, as the verdict document has it."""


def scenario() -> Scenario:
    return Scenario(
        name="link-flap",
        about="the link flaps and slows, A dies with transactions open, clients continue on B",
        seed=4711,
        topology=Topology(
            clusters=(ClusterSpec(name="A", brokers=3), ClusterSpec(name="B")),
            links=(LinkSpec(source="A", destination="B"),),
        ),
        mirror=MirrorSpec(kind="mm2", options={"delivery": "at-least-once"}),
        workloads=(WorkloadSpec(kind="transactional", home="A", clients=2),),
        schedule=(),
    )


def run(status: str = "running") -> Run:
    return Run(
        format=1,
        linkflap="0.1.0",
        command="linkflap run link-flap --runtime process --seed 4711",
        runtime="process",
        status="running",
        started=START - 4 * SECOND,
        ended=0,
        scenario=scenario(),
    )


def bite(observable: str, measured: object, expected: str) -> dict[str, object]:
    return {"bit": True, "observable": observable, "measured": measured, "expected": expected}


class Recorded:
    """Writes the rows of a run of `seconds`; A dies at 60 % of it and B takes over a second
    later."""

    def __init__(self, folder: Path, seconds: float = 20.0) -> None:
        self.folder, self.seconds = folder, seconds
        self.writer = RunWriter(folder, run())
        self.died = seconds * 0.6
        self.sent = self.seen = 0

    def _events(self) -> None:
        event, died = self._event, self.died
        event(0.0, "phase", "work")
        healed = {"healed": True, "checked": ["no toxic left", "every broker answers"]}
        for id, fault, target, start, end, bitten in (
            ("f1", "link-cut", "A->B", 2.0, 4.0, bite("connection", "refused", "refused")),
            ("f2", "latency", "A->B", 5.5, 8.5, bite("round trip, ms", 252.1, ">= 200")),
            (
                "f3",
                "broker-pause",
                "A/2",
                7.0,
                8.0,
                bite("metadata request", "no answer in 1 s", "no answer"),
            ),
        ):
            lasts = {"for": end - start, "options": {}, "restores": True}
            event(start, "fault-start", target, id=id, fault=fault, **lasts)
            event(start + 0.2, "fault-bite", target, id=id, **bitten)
            event(end, "fault-heal", target, id=id, **healed)
            event(end + 0.1, "fault-end", target, id=id)
        asked = {"options": {"kind": "forced"}, "restores": False}
        over = {"kind": "forced", "fault_time": self._at(died), "open_transactions": 2}
        event(died, "fault-start", "A->B", id="f4", fault="failover", **asked)
        event(died + 0.1, "fault-bite", "A->B", id="f4", **bite("brokers of A", "dead", "dead"))
        event(died + 0.5, "failover", "A->B", **over)
        for partition in (0, 1):
            where = {"cluster": "B", "topic": TOPIC, "partition": partition}
            event(died + 1.0, "promotion", "A->B", offset=1500, **where)

    def _at(self, second: float) -> int:
        return START + int(second * SECOND)

    def _event(self, second: float, kind: str, subject: str, /, **data: object) -> None:
        import msgspec

        from linkflap.harness.model.history import EventRow

        row = EventRow(time=self._at(second), kind=kind, subject=subject, data=data)
        with (self.folder / "events.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")

    def write(self) -> Recorded:
        operations, polls = self.writer.operations("producer-1"), self.writer.polls("reader-1")
        waters = {name: self.writer.watermarks(name) for name in "AB"}
        for tick in range(int(self.seconds * 10)):
            second = tick / 10
            cluster = "A" if second < self.died else "B"
            slow = 5.5 <= second < 8.5
            if not self.died <= second < self.died + 1.4:
                count = 12 + (tick * 7) % 9 - (5 if 7.0 <= second < 8.0 else 0)
                self._operation(operations, tick, second, cluster, count)
                self.sent += count
            if not 2.0 <= second < 4.2 and not self.died <= second < self.died + 1.0:
                step = min(self.sent - self.seen, 9 if slow else 60)
                self.seen += step
                self._poll(polls, second, "B", step)
            for name, level in (("A", self.sent), ("B", self.seen)):
                if name == "B" or second < self.died:
                    waters[name].write(self._watermark(second, name, level))
        self._events()
        self.writer.write_bounds("end", [self._bounds(name) for name in "AB"])
        return self

    def close(self, status: str = "finished") -> Path:
        self.writer.close(status, versions={"kafka": "4.3.1", "toxiproxy": "2.12.0"})  # type: ignore[arg-type]
        seal(self.folder)
        return self.folder

    def _operation(
        self, out: Appender[Operation], tick: int, second: float, cluster: str, count: int
    ) -> None:
        uid = (1 << PROCESS_SHIFT) + self.sent
        phases: tuple[Phase, ...] = ("invoke", "return")
        for phase in phases:
            time, acks = (
                (second, ()) if phase == "invoke" else (second + 0.03, ((0, count, self.sent),))
            )
            group = SendGroup(topic=TOPIC, partition=0, first_uid=uid, count=count, acks=acks)
            row = Operation(
                number=(1 << PROCESS_SHIFT) + tick,
                phase=phase,
                time=self._at(time),
                client="producer-1",
                process=1,
                cluster=cluster,
                kind="transaction",
                ending="commit",
                outcome="ok",
                sends=(group,),
            )
            out.write(row)

    def _poll(self, out: Appender[Poll], second: float, cluster: str, count: int) -> None:
        if not count:
            return
        first = self.seen - count
        fetched = Fetched(
            topic=TOPIC,
            partition=0,
            runs=(((1 << PROCESS_SHIFT) + first, first, count),),
            position=self.seen,
        )
        time = self._at(second + 0.05)
        row = Poll(
            time=time,
            returned=time,
            reader="reader-1",
            process=1,
            cluster=cluster,
            isolation="read_committed",
            kind="poll",
            fetched=(fetched,),
        )
        out.write(row)

    def _watermark(self, second: float, cluster: str, level: int) -> Watermark:
        time = self._at(second + 0.06)
        return Watermark(
            time=time,
            returned=time,
            cluster=cluster,
            leader=1,
            topic=TOPIC,
            partition=0,
            log_start=0,
            last_stable=level,
            high_watermark=level,
        )

    def _bounds(self, cluster: str) -> Bounds:
        return Bounds(
            cluster=cluster,
            broker=1,
            topic=TOPIC,
            partition=0,
            leader=True,
            alive=cluster == "B",
            log_start=0,
            high_watermark=self.seen,
            high_watermark_from="sampled",
        )
