"""The page: complete, self-contained, escaped, and truthful about damaged or empty runs."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import Note
from linkflap.harness.report import html
from linkflap.harness.report.searched import MOST_EVENTS
from linkflap.harness.rundir import RunWriter
from tests.events import event
from tests.unit.recorded_run import DIED, Recorded, run
from tests.unit.recorded_verdict import document

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """Balanced tags, texts, and everything that the page would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [
            v
            for name, v in attrs
            if name in ("src", "href") and v and not v.startswith(("#", "data:,", "logs/"))
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.words.append(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Recorded(tmp_path / "run").write().close()


def page(folder: Path, verdict: str = "valid", **more: object) -> Page:
    return Page(html.page(folder, document(folder, verdict) | more))


def test_whole(folder: Path) -> None:
    shown = page(folder, "invalid")
    for text in (
        "invalid link-flap the link flaps and slows",
        "anomalies 2, and 12 that the mirror's guarantee allows",
        "mm2 (delivery at-least-once)",
        "linkflap run link-flap --runtime process --seed 4711",
        "linkflap 0.1.0, kafka 4.3.1, toxiproxy 2.12.0",
        "failover A->B (forced) at 12.50 s, B promoted at 13.00 s",
        (
            "lost-write invalid A/native 1,830 B/native 1,011 B/mirrored 1,790 2 0 2 acknowledged "
            "records are nowhere"
        ),
        "A->B forced RPO, RTO 17 records, 1.43 s promoted 2 partitions",
        (
            "latency f2 A->B 5.50 s 8.60 s yes round trip, ms: 252.1 expected >= 200 no toxic left,"
            " every broker answers"
        ),
        "failover f4 A->B 12.00 s for good yes",
        "B A.orders-0 @ 1201",
        "B A.orders-0 nowhere",
        "allowed: at-least-once delivery repeats what was not committed when the link was cut",
        "A 3 brokers Kafka 4.3.1 B 1 broker Kafka 4.3.1 A->B",
    ):
        assert text in shown.text
    assert "What cannot be trusted" not in shown.text


def test_self_contained_and_escaped(folder: Path) -> None:
    shown = page(folder, "invalid")
    assert shown.fetched == []
    assert shown.tags.count("script") == 2, "one with data, one of our own"
    assert "<script>alert(1)</script>" in shown.text


def test_capped_anomalies_are_counted(folder: Path) -> None:
    capped = document(folder, "invalid")
    checks = capped["checks"]
    assert isinstance(checks, list)
    checks[1] |= {"anomalies": 5000, "kinds": {"lost-write": 5000}}
    shown = Page(html.page(folder, capped)).text
    assert "lost-write 5,000" in shown
    assert "4,998 more of this kind were found" in shown
    assert "4,998 more anomalies were counted than the document holds" in shown


def test_written_into_the_run_directory(folder: Path) -> None:
    path = html.write(
        folder,
        document(folder),
        html.About(drawing="THE DRAWING", meanings={"duplicate": "THE MEANING"}),
    )
    assert path == folder / "report.html"
    text = path.read_text(encoding="utf-8")
    assert "THE DRAWING" in text
    assert "THE MEANING" in text


def test_damage_is_named(folder: Path) -> None:
    (folder / "polls" / "reader-1.jsonl").unlink()
    with (folder / "operations" / "producer-1.jsonl").open("ab") as file:
        file.write(b'{"number":12,"pha')
    (folder / "captures" / "end" / "bounds.json").write_text("[{")
    shown = page(folder, "unknown")
    assert "What cannot be trusted" in shown.text
    assert "polls/reader-1.jsonl missing: it was there when the run ended" in shown.text
    assert re.search(r"operations/producer-1.jsonl line \d+ is torn", shown.text)
    assert "captures/end/bounds.json" in shown.text


@pytest.mark.parametrize("kept", [10, 200, 4000])
def test_any_torn_file_still_gives_a_page(folder: Path, kept: int) -> None:
    for path in folder.rglob("*.json*"):
        if path.name != "run.json":
            path.write_bytes(path.read_bytes()[:-kept])
    assert "What cannot be trusted" in page(folder, "unknown").text


def test_killed_before_anything_happened(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", run())
    killed = (tmp_path / "run" / "run.json").read_bytes()
    writer.close("finished")
    (tmp_path / "run" / "manifest.json").unlink()
    (tmp_path / "run" / "run.json").write_bytes(killed)
    shown = Page(
        html.page(tmp_path / "run", {"verdict": "unknown", "reason": "nothing was examined"})
    )
    for text in (
        "The run did not finish: its status is running",
        "nothing was examined",
        "Nothing was recorded that could be drawn",
        "No check was made",
        "No fault was played",
        "the run never ended: its harness was killed, or it still runs",
    ):
        assert text in shown.text


def test_moments_that_no_calendar_has_are_numbers(folder: Path) -> None:
    path = folder / "run.json"
    path.write_text(re.sub(r'"started": \d+', '"started": 1' + 30 * "0", path.read_text()))
    assert "1e+30 ns after 1970" in page(folder, "unknown").text


def test_interrupted(tmp_path: Path) -> None:
    folder = Recorded(tmp_path / "run", seconds=2.0).write().close("interrupted")
    assert "its status is interrupted" in page(folder, "unknown").text


def test_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run directory"):
        html.page(tmp_path, {"verdict": "valid"})


def test_the_same_run_gives_the_same_page(folder: Path) -> None:
    assert html.page(folder, document(folder)) == html.page(folder, document(folder))


def test_a_fault_that_never_ended_and_one_that_did_not_bite(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", run())
    writer.write(event("fault-start", "A->B", id="f1", fault="latency", restores=True))
    writer.write(
        event(
            "fault-bite",
            "A->B",
            id="f1",
            bit=False,
            observable="round trip",
            measured=1,
            expected=200,
        )
    )
    writer.write(event("fault-start", "A/1", id="f2", fault="pause $x$ & <b>", restores=True))
    writer.close("interrupted")
    shown = page(tmp_path / "run", "unknown")
    assert "latency f1 A->B 0.00 s no end recorded no round trip: 1 expected 200" in shown.text
    assert "not measured" in shown.text
    assert "pause $x$ & <b> f2 A/1" in shown.text


def test_clients_that_died_have_a_table_of_their_own(tmp_path: Path) -> None:
    folder = Recorded(tmp_path / "run", seconds=1.0).write().close()
    text = Page(html.page(folder, document(folder) | {"clients_died": [DIED]})).text
    assert "Clients that died" in text
    assert "transactional-1, transactional-2 clients-1 A, 2026-09-21 14:13:23 UTC SIGABRT" in text
    assert "transaction 7 (commit) of transactional-2" in text
    assert 'Assertion "BUG: Invalid transaction state' in text
    assert "Clients that died" not in Page(html.page(folder, document(folder))).text


def test_events_for_which_there_is_no_room_are_counted(tmp_path: Path) -> None:
    def left_out(name: str, notes: int) -> int:
        recorded = Recorded(tmp_path / name, seconds=1.0).write()
        for number in range(notes):
            recorded.writer.write(Note(about="A", name="mark", data={"number": number}))
        folder = recorded.close()
        (found,) = re.findall(r'"events_left_out":(\d+)', html.page(folder, document(folder)))
        return int(found)

    assert left_out("few", 1) == 0
    assert left_out("more", MOST_EVENTS + 5) - left_out("many", MOST_EVENTS) == 5


def test_an_unknown_run_shows_one_reason_and_folds_the_others(folder: Path) -> None:
    """The reasons of all checks at once would fill the first screen."""
    written = document(folder, "unknown")
    checks = written["checks"]
    assert isinstance(checks, list)
    first, second = checks[1]["name"], checks[2]["name"]
    checks[1] |= {
        "reason": "operations/p1.jsonl: has 5 bytes, had 9 when the run ended; and 6 more"
    }
    checks[2] |= {"verdict": "unknown", "reason": "the log of A is torn"}
    written["reason"] = "; ".join(f"{each['name']}: {each['reason']}" for each in checks[1:3])
    text = html.page(folder, written)
    (cause,) = re.findall(r'<p class="cause">(.*?)</p>', text)
    assert cause == f"{first}: operations/p1.jsonl: has 5 bytes, had 9 when the run ended"
    shown = Page(text).text
    assert "2 checks are unknown: all reasons" in shown
    assert f"{second}: the log of A is torn" in shown
