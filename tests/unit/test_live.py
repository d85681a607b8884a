"""Live clusters: client properties, which cluster is asked first, where copies are truncated, SASL
login; and the options of logs."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from click.testing import CliRunner
from scramp import ScramMechanism

from linkflap.cli.commands import linkflap
from linkflap.cli.log_options import live_logs_request, logs_request
from linkflap.harness.capture.live import record
from linkflap.harness.capture.live.captures import fetch_logs
from linkflap.harness.capture.live.cluster import GivenUp, access
from linkflap.harness.capture.live.record import (
    Copied,
    LiveLogsRequest,
    Pace,
    far_first,
    trim,
    truncate,
)
from linkflap.harness.capture.logs_request import LogsRequest
from linkflap.harness.log.layout import CRC_AT, HEAD, walk
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import FetchedAgain
from linkflap.harness.model.topology import LinkSpec, TopicPartition
from linkflap.harness.wire.access import Login, LoginFailed
from linkflap.harness.wire.messages import Error
from tests.copied_logs import sound
from tests.events import event
from tests.kafka_log import batches_in as reference
from tests.secured import certificates

PARTITION = ("orders", 0)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(text)
    return path


def test_properties_without_security_are_plain_text(tmp_path: Path) -> None:
    given = access(written(tmp_path, "# nothing\n\nbootstrap.servers=elsewhere:1\n"))
    assert (given.tls, given.login, given.client) == (None, None, "linkflap")


def test_names_are_librdkafkas(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    given = access(
        written(
            tmp_path,
            f"security.protocol=SASL_SSL\nssl.ca.location={made.authority}\nsasl.mechanism=scram-sha-256\n"
            f"sasl.username=me\nsasl.password=a=b\nclient.id=auditor\nssl.certificate.location={made.broker}\n",
        )
    )
    assert given.login == Login(mechanism="SCRAM-SHA-256", username="me", password="a=b")
    assert "a=b" not in repr(given)
    assert given.client == "auditor"
    assert given.tls is not None
    assert (given.tls.check_hostname, given.tls.verify_mode) == (True, ssl.CERT_REQUIRED)


@pytest.mark.parametrize(
    ("line", "checks_names", "mode"),
    [
        ("ssl.endpoint.identification.algorithm=none", False, ssl.CERT_REQUIRED),
        ("enable.ssl.certificate.verification=false", False, ssl.CERT_NONE),
    ],
)
def test_disabled_certificate_checks_are_off(
    tmp_path: Path, line: str, checks_names: bool, mode: ssl.VerifyMode
) -> None:
    given = access(written(tmp_path, f"security.protocol=ssl\n{line}\n"))
    assert given.tls is not None
    assert (given.tls.check_hostname, given.tls.verify_mode) == (checks_names, mode)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "ssl.truststore.location=/x.jks",
            "a Java client's; names are librdkafka's here, so give ssl.ca.location",
        ),
        ("sasl.jaas.config=x", "give sasl.username and sasl.password"),
        (
            "group.id=x",
            "group.id is unknown; names are librdkafka's, and these are read: security.protocol",
        ),
        ("no equals sign", "line 1, is not name=value"),
        ("security.protocol=tls", "it is one of plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ("security.protocol=sasl_ssl", "what can be used is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("security.protocol=sasl_ssl\nsasl.mechanisms=GSSAPI", "sasl.mechanism is GSSAPI"),
        (
            "security.protocol=sasl_plaintext\nsasl.mechanisms=PLAIN\nsasl.username=x",
            "PLAIN needs sasl.password",
        ),
        ("security.protocol=ssl\nssl.ca.location=/nowhere.pem", "name PEM files"),
        ("security.protocol=ssl\nssl.ca.pem=nothing", "name PEM files"),
    ],
)
def test_unusable_property_is_named_with_its_fix(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        access(written(tmp_path, text))
    assert said in str(error.value)
    assert "client.properties" in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.properties cannot be read: No such file"):
        access(tmp_path / "nothing.properties")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_proves_both_sides_to_each_other(mechanism: str) -> None:
    def server(password: str) -> Any:
        known = ScramMechanism(mechanism)
        return known.make_server(lambda _: known.make_auth_info(password))

    login = Login(mechanism=mechanism, username="me", password="secret")
    given, broker = login.dialogue(), server("secret")
    broker.set_client_first(next(given).decode())
    broker.set_client_final(given.send(broker.get_server_first().encode()).decode())
    with pytest.raises(StopIteration):
        given.send(broker.get_server_final().encode())

    given, stranger = login.dialogue(), server("secret")
    stranger.set_client_first(next(given).decode())
    given.send(stranger.get_server_first().encode())
    with pytest.raises(LoginFailed):
        given.send(b"v=bm90IHRoZSBwYXNzd29yZA==")


def test_plain_says_who_and_what_at_once() -> None:
    given = Login(mechanism="PLAIN", username="me", password="secret").dialogue()
    assert next(given) == b"\0me\0secret"
    with pytest.raises(StopIteration):
        given.send(b"")


def links(*names: str) -> list[LinkSpec]:
    return [LinkSpec(source=name[0], destination=name[-1]) for name in names]


@pytest.mark.parametrize(
    ("names", "arrows", "order"),
    [
        ("AB", ["A->B"], "BA"),
        ("ABC", ["A->B", "B->C"], "CBA"),
        ("BCA", ["A->B", "A->C"], "BCA"),
        ("AB", ["A->B", "B->A"], "AB"),
        ("A", [], "A"),
    ],
)
def test_clusters_are_asked_from_the_far_end(names: str, arrows: list[str], order: str) -> None:
    assert "".join(far_first(list(names), links(*arrows))) == order


def copies(tmp_path: Path, **reasons: str) -> dict[str, Copied]:
    """Logs of ten offsets, of two clusters; a log with a reason was copied up to 4."""
    made = {}
    for name in "AB":
        path = sound(tmp_path / name / "orders-0")
        made[name] = Copied(
            cluster=name, tp=PARTITION, broker=1, folder=path.parent, start=0, end=10, position=10
        )
        if name in reasons:
            trim(path.parent, 4)
            made[name].position, made[name].reason = 4, reasons[name]
    return made


def reach(copied: Copied) -> int:
    (path,) = copied.folder.glob("*.log")
    return max((batch.last + 1 for batch in walk(memoryview(path.read_bytes()))), default=-1)


FIRST = {"A": {PARTITION: 7}, "B": {PARTITION: 7}}
"""The log end offsets of both at the first request; at the last it was 10."""


def test_a_mirror_is_truncated_where_it_was_asked_first_and_its_source_where_it_was_asked_last(
    tmp_path: Path,
) -> None:
    made = copies(tmp_path)
    truncate(list(made.values()), FIRST, [], {"orders": "A"}, links("A->B"))
    assert {name: (copied.end, reach(copied)) for name, copied in made.items()} == {
        "A": (10, 10),
        "B": (7, 7),
    }


def test_promoted_cluster_owns_the_log(tmp_path: Path) -> None:
    made = copies(tmp_path)
    data = {"cluster": "B", "topic": "orders", "partition": 0, "offset": 7}
    truncate(
        list(made.values()), FIRST, [event("promotion", "A->B", at=1, **data)], {"orders": "A"},
        links("A->B", "B->A"),
    )  # fmt: skip
    assert {name: (copied.end, reach(copied)) for name, copied in made.items()} == {
        "A": (7, 7),
        "B": (10, 10),
    }


@pytest.mark.parametrize(("gone", "ends"), [("A", {"A": 4, "B": 4}), ("B", {"A": 10, "B": 4})])
def test_tail_missing_on_the_source_is_truncated_on_its_mirror(
    tmp_path: Path, gone: str, ends: dict[str, int]
) -> None:
    made = copies(tmp_path, **{gone: "it went away"})
    truncate(list(made.values()), FIRST, [], {"orders": "A"}, links("A->B"))
    assert {name: (copied.end, reach(copied)) for name, copied in made.items()} == {
        name: (end, end) for name, end in ends.items()
    }


def test_batches_are_those_of_the_log_and_a_torn_one_is_none(tmp_path: Path) -> None:
    path = sound(tmp_path / "orders-0")
    whole = path.read_bytes()
    found = list(walk(memoryview(whole)))
    assert [(b.start, b.stop - b.start) for b in found] == [
        (position, len(data)) for position, data in reference(path)
    ]
    assert [(b.base, b.last) for b in found] == [(0, 1), (2, 3), (4, 5), (6, 6), (7, 8), (9, 9)]
    assert list(walk(memoryview(whole[:-1]))) == found[:-1]
    with pytest.raises(ValueError, match="a batch of 11 bytes at offset 0"):
        list(walk(memoryview(whole[:8] + b"\xff\xff\xff\xff" + whole[12:])))


@pytest.mark.parametrize(("end", "kept"), [(10, 10), (9, 9), (8, 7), (1, -1), (0, -1)])
def test_a_copy_is_truncated_between_batches(tmp_path: Path, end: int, kept: int) -> None:
    copied = copies(tmp_path)["A"]
    trim(copied.folder, end)
    assert reach(copied) == kept


def test_segments_above_the_truncation_are_removed(tmp_path: Path) -> None:
    copied = copies(tmp_path)["A"]
    sound(copied.folder, base=10)
    trim(copied.folder, 6)
    assert [path.name for path in copied.folder.glob("*.log")] == [f"{0:020}.log"]
    assert reach(copied) == 6


# The options of logs on the command line, and errors with their fix.


NOTHING: dict[str, Any] = {"logs": (), "links": (), "promotions": (), "topics": ".*",
"preset": None, "settings": (),
    "producer_ids": None, "leader_epochs": None,
    "bootstrap": (), "properties": (), "rate": None,
}  # fmt: skip


def asked(**said: Any) -> LogsRequest | None:
    return logs_request(**{**NOTHING, **said})


def test_logs_links_and_promotions_are_read() -> None:
    arguments = asked(
        logs=("A=a/b=c", "B=d"), links=("A->B",),
        promotions=("B:my-topic-0=12", "B:my-topic-0=30", "A:x-1=0"),
        producer_ids="negate", topics="my.*",
    )  # fmt: skip
    assert arguments is not None
    assert arguments.logs == {"A": Path("a/b=c"), "B": Path("d")}
    assert arguments.links == [LinkSpec(source="A", destination="B")]
    assert arguments.promotions == {("B", "my-topic", 0): [12, 30], ("A", "x", 1): [0]}
    assert arguments.options == {"producer_ids": "negate"}
    assert arguments.topics == "my.*"


def test_without_logs_there_is_nothing_to_ask() -> None:
    assert asked() is None
    for rest in (
        {"links": ("A->B",)},
        {"promotions": ("B:t-0=1",)},
        {"preset": "cluster-mirroring"},
        {"producer_ids": "negate"},
    ):
        with pytest.raises(InputError, match="add --logs"):
            asked(**rest)


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ({}, {}),
        ({"preset": "shadow"}, {}),
        ({"preset": "cluster-mirroring"}, {"leader_epochs": "keep"}),
        ({"leader_epochs": "keep"}, {"leader_epochs": "keep"}),
        ({"preset": "cluster-mirroring", "leader_epochs": "any"}, {}),
        (
            {"preset": "cluster-mirroring", "producer_ids": "negate"},
            {"leader_epochs": "keep", "producer_ids": "negate"},
        ),
        ({"producer_ids": "keep"}, {}),
    ],
)
def test_a_mirror_is_said_by_its_name_or_by_what_it_keeps(
    said: dict[str, str], options: dict[str, str]
) -> None:
    arguments = asked(logs=("A=a", "B=b"), links=("A->B",), **said)
    assert arguments is not None
    assert arguments.options == options


def live(**said: Any) -> LiveLogsRequest | None:
    return live_logs_request(**{**NOTHING, **said})


def test_live_clusters_are_read(tmp_path: Path) -> None:
    file = tmp_path / "b.properties"
    file.write_text("client.id=auditor\n")
    arguments = live(
        bootstrap=("A=one:9092,two:9093", "B=[::1]:9092"), properties=(f"B={file}",),
        links=("A->B",), topics="my.*", rate=0.5,
        promotions=("B:my-0=3",),
    )  # fmt: skip
    assert arguments is not None
    assert arguments.bootstrap == {"A": ["one:9092", "two:9093"], "B": ["[::1]:9092"]}
    assert {name: each.client for name, each in arguments.access.items()} == {"B": "auditor"}
    assert arguments.rate == 500_000
    assert (arguments.request.links, arguments.request.topics) == (
        [LinkSpec(source="A", destination="B")],
        "my.*",
    )
    assert arguments.request.promotions == {("B", "my", 0): [3]}
    plain = live(bootstrap=("A=one:9092",))
    assert plain is not None
    assert plain.rate == 20_000_000


def test_without_live_clusters_there_is_nothing_to_fetch() -> None:
    assert live() is None
    assert live(logs=("A=x",)) is None
    for rest in ({"properties": ("A=x",)}, {"rate": 1.0}):
        with pytest.raises(InputError, match="add --bootstrap"):
            live(**rest)


NO_LINK = ("A", "A->", "->B", "A->A", "A->B->C")
NO_PROMOTION = (
    *("B:t=1", "t-0=1", "B:t-0", "B:t-0=-1", "B:t-x=1", "B:t-\u0663=1"),
    f"B:t-0={'9' * 5000}",  # too large for an offset
)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"bootstrap": ("A",)}, "is not CLUSTER=HOST:PORT"),
        ({"bootstrap": ("A=x:1", "A=y:1")}, "name of its own"),
        ({"bootstrap": ("A=x",)}, "'x' is not HOST:PORT"),
        ({"bootstrap": ("A=x:0",)}, "'x:0' is not HOST:PORT"),
        ({"bootstrap": ("A=x:1,",)}, "'' is not HOST:PORT"),
        ({"bootstrap": ("A=x:1",), "logs": ("A=y",)}, "give one of them"),
        (
            {"bootstrap": ("A=x:1",), "properties": ("B=y",)},
            "names B, but no --bootstrap defines B",
        ),
    ],
)
def test_live_clusters_that_cannot_be_meant_are_refused(
    said: dict[str, tuple[str]] | dict[str, tuple[str, str]], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        live(**said)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        *(({"logs": (text,)}, "is not CLUSTER=DIR") for text in ("A", "=x", "A=")),
        ({"logs": ("A=x", "A=y")}, "name of its own"),
        *(({"links": (text,)}, "is not one link") for text in NO_LINK),
        *(({"promotions": (text,)}, "is not CLUSTER:TOPIC-PARTITION=O") for text in NO_PROMOTION),
    ],
    ids=lambda each: str(each)[:60],
)
def test_logs_links_and_promotions_that_cannot_be_meant_are_refused(
    said: dict[str, tuple[str, ...]], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        asked(**{"logs": ("A=x", "B=y")} | said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give run directories to judge, or logs"),
        (("--logs", "A=.", "somewhere"), "only one of these"),
        (("--logs", "A=nowhere"), "there is no folder nowhere"),
    ],
)
def test_the_command_asks_for_one_or_the_other(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(linkflap, ["verify", *arguments], standalone_mode=False)
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)
    assert list(tmp_path.iterdir()) == []


class Answering:
    """One broker that gives these logs, one after the other, to whoever reads; for None it says
    that the offset is out of range, and then that its log starts at `deleted`; a GivenUp it
    raises."""

    def __init__(
        self, *logs: bytes | GivenUp | None, deleted: int = 0, moved: bool = False
    ) -> None:
        self.name, self.brokers, self.patience = "A", {1: ("a", 1)}, 1.0
        self.asked: list[int] = []
        self._logs, self._starts, self._leaders = list(logs), [0, deleted], [1, 2 if moved else 1]

    def bounds(self, tps: Sequence[TopicPartition], which: str) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self._starts.pop(0) if which == "start" else 10)

    def leader(self, tp: TopicPartition) -> int:
        return self._leaders.pop(0)

    def fetch(self, tp: TopicPartition, offset: int, **_: object) -> SimpleNamespace:
        self.asked.append(offset)
        log = self._logs.pop(0)
        if isinstance(log, GivenUp):
            raise log
        return SimpleNamespace(
            data=memoryview(log or b""),
            error=Error.offset_out_of_range if log is None else Error.none,
            diverges=False,
            sent_on=False,
        )


GONE: Final = GivenUp("it went away", everything=True)
REFUSED: Final = GivenUp("kafka_storage_error")


def crc_of(log: bytes, batch: int) -> int:
    return int.from_bytes(log[batch + CRC_AT :][:4], "big")


def put(log: bytes, at: int, new: bytes) -> bytes:
    return log[:at] + new + log[at + len(new) :]


def test_bytes_that_change_between_two_fetches_are_reported(tmp_path: Path) -> None:
    log = sound(tmp_path / "log").read_bytes()
    *_, before, last = walk(memoryview(log))
    changed = put(log, len(log) - 1, bytes([log[-1] ^ 1]))
    epoch_at = last.start + HEAD.size - 5
    truncated = put(changed, epoch_at, (last.epoch + 1).to_bytes(4, "big"))
    lower = put(log, epoch_at, (last.epoch - 1).to_bytes(4, "big", signed=True))
    changed_before = put(truncated, last.start - 1, bytes([log[last.start - 1] ^ 1]))
    in_the_middle = put(log, before.start + HEAD.size - 5, (last.epoch + 1).to_bytes(4, "big"))
    at_before = before.base, (crc_of(log, before.start),) * 2
    lacking = log[: before.start] + log[last.start :]
    at_last = last.base, (crc_of(log, last.start),) * 2
    for cluster, expected, not_compared in (
        (Answering(log, log), None, ""),
        (Answering(log, changed), at_last, ""),
        (Answering(log, lower), at_last, ""),
        (Answering(log, lacking), (before.base, (crc_of(log, before.start), None)), ""),
        (Answering(log, truncated), None, "its log was truncated meanwhile"),
        (Answering(log, changed_before), at_before, "its log was truncated meanwhile"),
        (Answering(log, in_the_middle), at_before, ""),
        (Answering(log, changed, moved=True), None, "another broker leads it now"),
        (Answering(log, None, log[last.start :], deleted=last.base), None, ""),
        (Answering(log, None, changed[last.start :], deleted=last.base), at_last, ""),
        (Answering(log, GONE), None, "it went away"),
        (Answering(log, REFUSED), None, "kafka_storage_error"),
    ):
        found: list[FetchedAgain] = []
        lacking_now: list[str] = []
        (bounds,) = fetch_logs(
            cast(Any, cluster),
            [PARTITION],
            tmp_path / "copies",
            Pace(1e9),
            every_broker=True,
            changed=found.append,
            uncompared=lacking_now.append,
        )
        assert lacking_now == [f"orders-0 of broker 1 ({not_compared})"] * bool(not_compared)
        assert (bounds.broker, bounds.high_watermark) == (1, 10)
        assert [(each.offset, each.crc) for each in found] == [expected] * (expected is not None)
        assert [path.name for path in (tmp_path / "copies" / "1").iterdir()] == ["orders-0"]
        shutil.rmtree(tmp_path / "copies")


def test_a_follower_whose_log_begins_later_by_now_is_read_from_there(tmp_path: Path) -> None:
    log = sound(tmp_path / "log").read_bytes()
    *_, last = walk(memoryview(log))

    class Follower(Answering):
        """Says of None that it has nothing there."""

        def fetch_from(self, broker: int, *where: Any, **rest: Any) -> SimpleNamespace:
            got = self.fetch(*where, **rest)
            return SimpleNamespace(**(vars(got) | {"error": self.said[got.error]}))

        def refresh_leaders(self) -> None:
            """They are as they were."""

        said: Final = {
            Error.none: Error.none,
            Error.offset_out_of_range: Error.offset_not_available,
        }

    for logs, start in (((None, log[last.start :]), last.base), ((None, log), 0)):
        cluster = Follower(*logs)
        cluster._starts = [start] * 4
        copied = record.Copied(
            cluster="A", tp=PARTITION, broker=2, folder=tmp_path / str(start), start=0,
            end=last.last + 1, pinned=True,
        )  # fmt: skip
        record.copy(cast(Any, cluster), copied, Pace(1e9), lambda *_: None)
        assert (copied.reason, copied.start, copied.position) == ("", start, last.last + 1)


def test_only_the_newest_segment_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = sound(tmp_path / "log").read_bytes()
    first, *_, last = walk(memoryview(log))
    batches = [log[b.start : b.stop] for b in walk(memoryview(log))]
    monkeypatch.setattr(record, "SEGMENT_BYTES", first.stop)
    cluster = Answering(*batches, log[last.start :])
    found: list[FetchedAgain] = []
    fetch_logs(cast(Any, cluster), [PARTITION], tmp_path / "c", Pace(1e9), changed=found.append)
    assert not found
    assert cluster.asked == [*(b.base for b in walk(memoryview(log))), last.base]


def test_what_is_fetched_again_may_take_more_than_one_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker gives one batch less at first, and then batches that are longer."""
    log = sound(tmp_path / "log").read_bytes()
    bases = [batch.base for batch in walk(memoryview(log))]
    begins = [batch.start for batch in walk(memoryview(log))]
    cluster = Answering(log, log[: begins[1]], log[begins[1] :])
    real = record.Segments.append

    def append(self: record.Segments, data: memoryview, base: int) -> None:
        monkeypatch.setattr(
            record, "SEGMENT_BYTES", 1 if cluster.asked[-1] == bases[1] else 1 << 30
        )
        real(self, data, base)

    monkeypatch.setattr(record.Segments, "append", append)
    found: list[FetchedAgain] = []
    fetch_logs(cast(Any, cluster), [PARTITION], tmp_path / "c", Pace(1e9), changed=found.append)
    assert not found
