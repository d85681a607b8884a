"""A recorder of cluster A without sockets, in a run directory, and messages for it."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest

from linkflap.chaos.cases.wire import ProducerIdentity, record_batch
from linkflap.harness.model.history import Operation
from linkflap.harness.model.interference import API_VERSIONS, APIS, Does, Interference
from linkflap.harness.rundir import Run, RunReader, RunWriter
from linkflap.harness.wire import messages
from linkflap.harness.wire.forwarding import Frames
from linkflap.harness.wire.messages import Error, Side
from linkflap.harness.wire.recorder.connection import WireConnection
from linkflap.harness.wire.recorder.history import WireHistory
from linkflap.harness.wire.recorder.interferences import Interferences
from linkflap.harness.wire.recorder.settings import FIRST_PROCESS, Asked, Report, Settings
from linkflap.spark_verify.facts.sends_and_reads import Send
from linkflap.spark_verify.read.assemble import PartitionRows
from linkflap.spark_verify.read.pieces import history_rows
from tests.scenarios import ALONE, scenario_of

TOPIC = "A.t"
ID = UUID(int=77)
FIRST = FIRST_PROCESS << 40
ME = ProducerIdentity(id=7, epoch=0)
SIDES: Final[Sequence[Side]] = ("request", "response")


@dataclass
class Wire:
    """A recorder of cluster A without sockets, in a run directory."""

    writer: RunWriter
    report: Report = field(default_factory=Report)
    correlation: int = 0
    pieces: int = 1 << 30
    faults: Interferences = field(default_factory=Interferences)
    brokers: bytearray = field(default_factory=bytearray)
    clients: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        settings = Settings(
            cluster="A",
            number=0,
            root=str(self.writer.root),
            topics=frozenset({TOPIC}),
            reads=frozenset({TOPIC}),
            groups=frozenset({"shop"}),
            share_groups=frozenset({"workers"}),
            listens={},
        )
        rows = self.writer.operations("wire-A"), self.writer.polls("wire-A")
        self.history = WireHistory(settings, *rows, self.report)

    def connection(self) -> WireConnection:
        return WireConnection(self.history, self.faults)

    def fault(self, does: Does, api: str, **options: Any) -> None:
        what = Interference(does=does, api=APIS.get(api, API_VERSIONS), **options)
        self.faults.ask(Asked(number=1, faults={"f": what}))

    @property
    def done(self) -> int:
        return self.faults.done.done.get("f", 0)

    def feed(self, frames: Frames, frame: bytes, passed: bytearray) -> None:
        for at in range(0, len(frame), self.pieces):
            try:
                frames.feed(memoryview(frame)[at : at + self.pieces])
            finally:
                passed += frames.taken()

    def ask(self, connection: WireConnection, api: str, version: int, body: Any) -> int:
        self.correlation += 1
        frame = messages.encode_request(api, version, self.correlation, "shop", body)
        self.feed(connection.requests, frame, self.brokers)
        return self.correlation

    def answer(
        self, connection: WireConnection, api: str, version: int, correlation: int, body: Any
    ) -> None:
        frame = bytes(messages.encode_response(api, version, correlation, body))
        self.feed(connection.responses, frame, self.clients)

    def produce(
        self,
        connection: WireConnection,
        records: bytes,
        *,
        version: int = 9,
        acks: int = -1,
        topic: str = TOPIC,
        transactional_id: str | None = None,
    ) -> int:
        m = messages.request("produce", version)
        name = {"topic_id": ID} if version >= 13 else {"name": topic}
        data = m.TopicProduceData(
            **name, partition_data=(m.PartitionProduceData(index=0, records=records),)
        )
        body = m.ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout=timedelta(seconds=1),
            topic_data=(data,),
        )
        return self.ask(connection, "produce", version, body)

    def written(
        self,
        connection: WireConnection,
        correlation: int,
        offset: int,
        *,
        version: int = 9,
        error: Any = Error.none,
    ) -> None:
        m = messages.response("produce", version)
        name = {"topic_id": ID} if version >= 13 else {"name": TOPIC}
        errors = {"record_errors": ()} if version >= 8 else {}
        each = m.PartitionProduceResponse(index=0, error_code=error, base_offset=offset, **errors)
        body = m.ProduceResponse(
            responses=(m.TopicProduceResponse(**name, partition_responses=(each,)),),
            throttle_time=timedelta(0),
        )
        self.answer(connection, "produce", version, correlation, body)

    def end(self, connection: WireConnection, *, commit: bool, who: ProducerIdentity = ME) -> int:
        body = messages.request("end_txn", 4).EndTxnRequest(
            transactional_id="payments",
            producer_id=who.id,
            producer_epoch=who.epoch,
            committed=commit,
        )
        return self.ask(connection, "end_txn", 4, body)

    def ended(self, connection: WireConnection, correlation: int, error: Any = Error.none) -> None:
        body = messages.response("end_txn", 4).EndTxnResponse(
            throttle_time=timedelta(0), error_code=error
        )
        self.answer(connection, "end_txn", 4, correlation, body)

    def rows(self) -> Sequence[Operation]:
        rows, damage = RunReader(self.writer.root).operations()
        assert damage == []
        return rows

    def sends(self) -> Sequence[Send]:
        """The judge's view of the rows."""
        gathered = PartitionRows()
        for batch in history_rows(self.writer.root, "operations"):
            gathered.add(batch)
        return list(gathered.sends())


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    scenario = scenario_of(ALONE)
    writer = RunWriter(tmp_path / "run", Run.begun(scenario, "process"))
    yield Wire(writer)
    writer.close("finished")


def batch(*values: bytes, sequence: int = 0, who: ProducerIdentity | None = ME) -> bytes:
    return record_batch(values, producer=who, sequence=sequence if who else -1)


def transactional(*values: bytes, sequence: int = 0) -> bytes:
    return record_batch(values, producer=ME, sequence=sequence, transactional=True)


def example(entity: Any) -> Any:
    """A message with one of everything."""
    hints = get_type_hints(entity)
    values: dict[str, Any] = {}
    for each in fields(entity):
        hint = hints[each.name]
        if get_origin(hint) is tuple:
            (inner, _) = get_args(hint)
            simple = "x" if isinstance(inner, type) and issubclass(inner, str) else 0
            values[each.name] = (example(inner) if is_dataclass(inner) else simple,)
        elif is_dataclass(hint):
            values[each.name] = example(hint)
        elif each.default is MISSING:
            kinds = (
                (Error, Error.none),
                (bool, False),
                (int, 0),
                (str, "x"),
                (bytes, b""),
                (timedelta, timedelta(0)),
            )
            values[each.name] = next(
                (v for k, v in kinds if isinstance(hint, type) and issubclass(hint, k)), None
            )
    return entity(**values)


def oldest(api: str) -> int:
    package = import_module(f"kio.schema.{api}")
    return min(int(found.name[1:]) for found in pkgutil.iter_modules(package.__path__))
