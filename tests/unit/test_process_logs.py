"""Log lines of brokers and mirrors around an anomaly: the right lines of the right time, in bounded
memory, whatever is in the logs."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from linkflap.harness.model.events import Promotion
from linkflap.harness.model.history import Watermark
from linkflap.harness.model.verdict import Anomaly
from linkflap.harness.rundir import RunReader, process_logs
from linkflap.harness.rundir.process_logs import Logged, read
from linkflap.spark_verify.read.logged_around import LoggedAround, RunLogs, named_by
from tests.synthetic import write_run

SECOND = 1_000_000_000
STARTED = 1_790_000_000
FOREVER = 1 << 62


def line(second: float, text: str, zone: timedelta = timedelta()) -> str:
    """As brokers print it, in local time."""
    at = datetime.fromtimestamp(STARTED + second, UTC) + zone
    return f"[{at.strftime('%Y-%m-%dT%H:%M:%S')},{at.microsecond // 1000:03}] {text}"


def write(root: Path, name: str, content: str | bytes) -> Path:
    path = root / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def every(root: Path, begin: float = 0, end: float | None = None) -> Sequence[Logged]:
    logs = read(root, STARTED * SECOND, 0)
    until = FOREVER if end is None else int((STARTED + end) * SECOND)
    return logs.between(int((STARTED + begin) * SECOND), until)


def said(found: Sequence[Logged]) -> list[tuple[str, str, int]]:
    return [(each.level, each.text, each.count) for each in found]


def test_lines_that_differ_in_numbers_are_one_and_counted(tmp_path: Path) -> None:
    write(
        tmp_path,
        "A/1/server.log",
        "\n".join(
            [
                line(1, "INFO all is well (Broker)"),
                *(line(n, f"WARN no connection to node {n} (Client)") for n in range(2, 5)),
                line(6, "ERROR Failed to append abort marker (Mirror)"),
                "java.lang.IllegalArgumentException: transactionVersion must be specified",
                "\tat org.apache.kafka.X.y(X.java:1)",
                "Caused by: java.io.IOException: no room",
                line(7, "INFO an ERROR is only talked about"),
            ]
        ),
    )
    assert (
        said(every(tmp_path))
        == [
            ("WARN", "no connection to node 2 (Client)", 3),
            ("ERROR", "Failed to append abort marker (Mirror): java.io.IOException: no room", 1),
        ][::-1]
    )
    (warned,) = every(tmp_path, 2.5, 5)
    assert (warned.count, warned.before, warned.where) == (2, 1, ("logs/A/1/server.log:3",))
    assert warned.process == "A/1"


def test_markers_that_a_broker_drops_are_found_though_it_logs_them_as_information(
    tmp_path: Path,
) -> None:
    dropped = "Couldn't find leader endpoint for partitions Set(A.t-0) (Channel)"
    write(tmp_path, "A/1/server.log", "\n".join([line(1, f"INFO {dropped}"), line(2, "INFO up")]))
    assert said(every(tmp_path)) == [("INFO", dropped, 1)]


@pytest.mark.parametrize("hours", [0, 5.5, -7])
def test_times_whatever_zone_a_process_prints(tmp_path: Path, hours: float) -> None:
    zone = timedelta(hours=hours)
    content = [line(1, "INFO up", zone), line(100, "WARN late", zone), line(9000, "INFO on", zone)]
    write(tmp_path, "A/1/server.log", "\n".join(content))
    # a mirror that began an hour later, in the same zone; one that prints UTC; one with its zone
    write(tmp_path, "B/mirror/service.log", line(3600, "WARN mine", zone))
    write(tmp_path, "C/mirror/output.log", line(3700, "WARN not there yet"))
    east = line(3800, "WARN elsewhere", timedelta(hours=2)).replace("]", "+02:00]")
    write(tmp_path, "D/mirror/output.log", east)
    logs = read(tmp_path, STARTED * SECOND, (STARTED + 4000) * SECOND)
    found = logs.between(0, FOREVER)
    assert [(each.text, each.first // SECOND - STARTED) for each in found] == [
        ("late", 100), ("mine", 3600), ("not there yet", 3700), ("elsewhere", 3800),
    ]  # fmt: skip


def test_a_line_without_a_time_has_that_of_the_line_before(tmp_path: Path) -> None:
    write(tmp_path, "A/1/server.log", line(5, "INFO x") + "\nWARN bare\n")
    assert [each.first // SECOND - STARTED for each in every(tmp_path)] == [5]
    write(tmp_path, "A/1/server.log", "ERROR nobody knows when\n")
    (found,) = every(tmp_path, 3, 4)
    assert (found.text, found.first, found.count) == ("nobody knows when", 0, 1)


def test_logs_of_links_clients_and_data_are_left_out(tmp_path: Path) -> None:
    for name in ("A/access/toxiproxy.log", "clients/c-1.log", "commands/p/output.log"):
        write(tmp_path, name, line(1, "ERROR cut"))
    write(tmp_path, "A/1/data/t-0/00000000000000000000.log", line(1, "ERROR a record"))
    write(tmp_path, "A/1/server.log.1", line(1, "ERROR rolled"))
    assert said(every(tmp_path)) == [("ERROR", "rolled", 1)]


HOSTILE = {
    "control characters": (line(1, "ERROR \x1b[2J\x07gone \u202etxt").encode(), "gone"),
    "no UTF-8": (line(1, "ERROR bad ").encode() + b"\xff\xfe\x80 end", "bad"),
    "NULs": (line(1, "ERROR with ").encode() + b"\0" * 9000 + b"\n", "with"),
    "torn": (line(1, "ERROR half a li").encode(), "half a li"),
    "no date": (b"[2026-13-45T99:99:99,000] ERROR when\n", "when"),
    "year 1": (b"[0001-01-01T00:00:00,000] ERROR old\n", "old"),
    "another calendar": (b"[9999-12-31T23:59:59,999-1800] ERROR new\n", "new"),
    "year 1, in UTC": (b"[0001-01-01T00:00:00,000Z] ERROR old\n", "old"),
    "year 9999, in UTC": (b"[9999-12-31T23:59:59,999Z] ERROR new\n", "new"),
    "a zone that is none": (b"[2026-09-21T14:13:20,000+99:99] ERROR far\n", "far"),
    "JSON": (b'{"level":"error","time":"2026-09-21T14:13:21Z","message":"in JSON"}\n', "in JSON"),
    "line feeds": (b"\r\n\r\n" + line(1, "ERROR dos").encode() + b"\r\n", "dos"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_anything_may_be_in_a_log(tmp_path: Path, name: str) -> None:
    content, words = HOSTILE[name]
    write(tmp_path, "A/1/server.log", content)
    logs = read(tmp_path, STARTED * SECOND, 0)
    (found,) = logs.between(0, 1 << 63)
    assert found.level == "ERROR"
    assert words in found.text
    assert found.text.isprintable()
    assert len(found.text) <= 600


def test_a_log_that_is_no_file_or_absent_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "A/1/server.log", "")
    path.unlink()
    os.mkfifo(path)
    (tmp_path / "logs" / "A" / "link.log").symlink_to("/dev/zero")
    logs = read(tmp_path, 0, 0)
    assert sorted(logs.unread) == [
        "logs/A/1/server.log cannot be read: it is a FIFO, not a regular file",
        "logs/A/link.log cannot be read: it is a symbolic link, not a regular file",
    ]
    assert read(tmp_path / "nowhere", 0, 0).logs == 0


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_logs, "MOST_TEXTS", 500)
    monkeypatch.setattr(process_logs, "MOST_BYTES", 6 << 20)
    flood = [line(1, f"WARN {'x' * (n % 97)} {n:x}y") for n in range(20_000)]
    write(tmp_path, "A/1/server.log", "\n".join([*flood, line(2, "ERROR " + "z" * (8 << 20)), ""]))
    tracemalloc.start()
    try:
        logs = read(tmp_path, STARTED * SECOND, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert logs.unread[0] == "logs/A/1/server.log is not read beyond 6 MiB"
    assert logs.unread[1].endswith("more warnings and errors are not looked at")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Failed for partition A.orders-1 at", True),
        ("topic A.orders, partition 1: no", True),
        ("[A.orders-1]", True),
        ("A.orders-1.", True),
        ("A.orders-10", False),
        ("B.A.orders-1", False),
        ("A.orders-0", False),
        ("producerId=7, epoch 1", True),
        ("producer id 7", True),
        ("producerId=71", False),
        ("epoch 7", False),
        ("transactional id tx-a is", True),
        ("tx-a-2", False),
    ],
)
def test_line_matches_if_it_names_the_partition_or_producer(text: str, named: bool) -> None:
    pattern = named_by(anomaly(transactional_id="tx-a"))
    assert pattern is not None
    assert bool(pattern.search(text)) is named


def anomaly(offset: int = 10, **evidence: object) -> Anomaly:
    return Anomaly(
        check="c", kind="k", cluster="B", topic="A.orders", partition=1, offset=offset,
        evidence={"producer_id": 7, **evidence},
    )  # fmt: skip


def sample(second: int, high: int, stable: int | None = None) -> Watermark:
    time = (STARTED + second) * SECOND
    return Watermark(
        time=time, returned=time, cluster="B", leader=1, topic="A.orders", partition=1, log_start=0,
        last_stable=high if stable is None else stable, high_watermark=high,
    )  # fmt: skip


def around(root: Path, subject: Anomaly, *samples: Watermark, promoted: int = 0) -> LoggedAround:
    at = (STARTED + promoted) * SECOND
    promotion = Promotion(
        link="A->B", cluster="B", topic="A.orders", partition=1, offset=20, time=at
    )
    return RunLogs(RunReader(root)).around(subject, samples, [promotion] if promoted else [])


def seconds(found: LoggedAround) -> tuple[float, float]:
    return found.begin / SECOND - STARTED, found.end / SECOND - STARTED


def test_the_time_between_the_last_good_sample_and_the_anomaly(tmp_path: Path) -> None:
    root = write_run(tmp_path / "run")
    good, bad, later = sample(10, 5), sample(20, 15), sample(30, 15)
    assert seconds(around(root, anomaly(), good, bad, later)) == (10, 22)
    assert seconds(around(root, anomaly(time=(STARTED + 25) * SECOND), good, bad, later)) == (
        20,
        32,
    )
    # readers stand still until the end, and a promotion came later
    stuck = sample(30, 15, stable=10)
    assert seconds(around(root, anomaly(), good, bad, stuck)) == (10, 32)
    assert seconds(around(root, anomaly(), good, bad, later, promoted=50)) == (10, 52)


@pytest.mark.parametrize(
    ("logged", "quoted"),
    [
        (["WARN A.orders-1 failed (x)", "ERROR A.orders-1 is FAILED (y)"], "is FAILED"),
        (["ERROR A.orders-1 is FAILED (y)", "ERROR A.orders-1 died (z)\na.BadError: tv"], "died"),
        (
            [
                "WARN fetch of A.orders-1 (x)\nj.IOException: 1 was disconnected before",
                "WARN Truncating A.orders-1 to 0 (y)",
            ],
            "Truncating",
        ),
        (["WARN fetch of A.orders-1 (x)\nj.IOException: 1 was disconnected before"], "fetch"),
    ],
)
def test_the_line_that_explains_most_is_quoted(
    logged: list[str], quoted: str, tmp_path: Path
) -> None:
    root = write_run(tmp_path / "run")
    begun = RunReader(root).run.started // SECOND - STARTED
    lines = [line(begun, "INFO up"), *(line(15 + n, text) for n, text in enumerate(logged))]
    write(root, "B/1/server.log", "\n".join(lines))
    found = around(root, anomaly(), sample(10, 5), sample(20, 15))
    assert quoted in found.quoted


def test_the_line_that_names_it_is_first_and_quoted_unless_it_came_before(tmp_path: Path) -> None:
    root = write_run(tmp_path / "run")
    begun = RunReader(root).run.started // SECOND - STARTED
    of_start = [line(begun, "INFO up")]
    routine = [line(n, "ERROR Expected partition A.orders-1 (x)") for n in (2, 15)]
    other = [line(15, "ERROR disk is slow (y)"), line(16, "WARN reset of producer id 7 (z)")] * 2
    write(root, "B/1/server.log", "\n".join([*of_start, *routine, *other]))
    write(root, "A/1/server.log", line(16, "WARN A.orders-1 moved (q)"))
    found = around(root, anomaly(), sample(10, 5), sample(20, 15))
    assert [(each.text[:12], each.count, each.before) for each in found.lines] == [
        ("A.orders-1 m", 1, 0),
        ("reset of pro", 2, 0),
        ("Expected par", 1, 1),
        ("disk is slow", 2, 0),
    ]
    assert found.quoted == 'meanwhile B/1 logged WARN "reset of producer id 7 (z)" 2 times'
    assert around(root, anomaly(99, producer_id=8), sample(10, 5)).quoted == ""
    assert found.unread == ()
