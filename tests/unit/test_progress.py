"""Progress of a run, unexpected exits of its processes, and when a client goes on."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.history import Watermark
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import TopicPartition
from linkflap.recording.run_end import _Client
from linkflap.recording.unexpected_exits import UnexpectedExits, how
from linkflap.report.progress import Counters, PlainLines, Progress, Screen, shown_on
from tests.events import Rows


class Clock:
    """Seconds that pass only when asked to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def terminal() -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=100, color_system=None, legacy_windows=False
    )


def frame_of(screen: Screen) -> str:
    console = terminal()
    console.print(screen.frame())
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def test_a_run_without_a_terminal_is_a_line_for_each_step(clock: Clock) -> None:
    stream = io.StringIO()
    with PlainLines(stream, clock) as shown:
        shown.phase("start clusters")
        clock.now += 2.5
        shown.phase("work")
        shown.fault_started("f1", "link-cut", "A->B", 4)
        clock.now += 4.25
        shown.fault_ended("f1")
        shown.fault_started("f2", "broker-kill", "A/1", None)
        shown.fault_ended("f2", "left")
        shown.note("B promoted")
    assert stream.getvalue().splitlines() == [
        "    0.0 s  phase start clusters",
        "    2.5 s  done  start clusters  2.5 s",
        "    2.5 s  phase work",
        "    2.5 s  fault f1: link-cut on A->B for 4 s",
        "    6.8 s  end   f1: link-cut on A->B ended after 4.2 s",
        "    6.8 s  fault f2: broker-kill on A/1 for good",
        "    6.8 s  end   f2: broker-kill on A/1 left after 0.0 s",
        "    6.8 s  note  B promoted",
        "    6.8 s  done  work  4.2 s",
    ]


def test_counter_lines_come_about_every_two_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    with PlainLines(stream, clock) as shown:
        shown.lag("A->B", 7)
        shown.lag("B->C", None)
        for tick in range(41):
            shown.counters(Counters(acknowledged=tick, aborted=1, open=2, read=3))
            clock.now += 0.25
    lines = stream.getvalue().splitlines()
    assert len(lines) == 5
    assert (
        lines[0]
        == "    2.0 s  count acknowledged 8, aborted 1, open 2, read 3, lag A->B 7, lag B->C"
        " unknown"
    )


def test_a_phase_that_failed_is_not_called_done(clock: Clock) -> None:
    stream = io.StringIO()
    shown = PlainLines(stream, clock)
    shown.phase("work")
    shown.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert "done" not in stream.getvalue()


def test_a_closed_stream_does_not_end_the_run(clock: Clock) -> None:
    stream = io.StringIO()
    shown = PlainLines(stream, clock)
    stream.close()
    shown.phase("work")
    shown.note("still here")


def test_the_frame_on_a_terminal_has_phase_faults_rates_and_lag(clock: Clock) -> None:
    screen = Screen(terminal(), clock)
    screen.phase("work")
    screen.fault_started("f1", "latency", "A->B", 10)
    screen.fault_started("f2", "broker-kill", "A/1", None)
    screen.counters(Counters())
    clock.now += 2
    screen.counters(Counters(acknowledged=5000, aborted=3, open=1, read=1000))
    screen.lag("A->B", 1234)
    screen.lag("B->A", None)
    shown = frame_of(screen)
    assert "work  2 s  (run 2 s)" in shown
    assert "latency on A->B" in shown
    assert "8.0 s" in shown
    assert "broker-kill on A/1  for good" in shown
    assert "acknowledged 5,000 2,500/s" in shown
    assert "read 1,000 500/s" in shown
    assert "aborted 3" in shown
    assert "open 1" in shown
    assert "lag A->B 1,234" in " ".join(shown.split())
    assert "lag B->A ?" in " ".join(shown.split())
    clock.now += 9
    assert "latency on A->B  healing" in frame_of(screen)
    screen.fault_ended("f1")
    assert "latency" not in frame_of(screen)


def test_names_are_not_markup(clock: Clock) -> None:
    screen = Screen(terminal(), clock)
    screen.phase("[bold]odd[/nothing]")
    assert "[bold]odd[/nothing]" in frame_of(screen)


@pytest.mark.parametrize("live", [True, False])
def test_threads_that_report_at_once_lose_no_note(live: bool) -> None:
    """The refresh thread of rich and the reporting threads must not deadlock."""
    console = terminal()
    output = console.file
    assert isinstance(output, io.StringIO)
    shown: Progress = Screen(console) if live else PlainLines(output)

    def tell(n: int) -> None:
        for i in range(50):
            shown.fault_started(f"f{n}-{i}", "cut", "A->B", 1)
            shown.counters(Counters(acknowledged=i))
            shown.lag("A->B", i)
            shown.note(f"note {n}-{i}.")
            shown.fault_ended(f"f{n}-{i}")

    with shown:
        threads = [threading.Thread(target=tell, args=(n,), daemon=True) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    text = output.getvalue()
    assert all(text.count(f"note {n}-{i}.") == 1 for n in range(4) for i in range(50))


def test_output_to_no_terminal_is_lines() -> None:
    assert isinstance(shown_on(io.StringIO()), PlainLines)


def test_the_default_is_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_on() as shown:
        shown.phase("work")
        shown.note("halfway")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split(" s  ")[1] for line in captured.err.splitlines()][:2] == [
        "phase work",
        "note  halfway",
    ]


def test_a_terminal_gets_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(shown_on(Terminal()), Screen)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(shown_on(Terminal()), PlainLines)


# Unexpected exits: a failover explains the processes that it ended, also when its mirror was
# reversed; nothing explains a later death.
#
# Of a broker it is reported how it ended and what it logged last.


AWAY = FaultSpec(id="away", fault="failover-forced", target="A->B", at=0, duration=0)
REVERSE = FaultSpec(
    id="reverse", fault="mirror-reverse", target="A->B", at=0, duration=0, when="after:away"
)


class Scene:
    """A pair of clusters with one broker each, mirrors in both directions, and the active
    faults."""

    def __init__(self) -> None:
        self.faults: list[FaultSpec] = []
        self.brokers = {name: self.broker(name) for name in "AB"}
        self.mirrors = {"A->B": SimpleNamespace(alive=True)}
        clusters = {
            name: SimpleNamespace(brokers={1: broker}) for name, broker in self.brokers.items()
        }
        self.events = Rows()
        self.recorders: dict[str, SimpleNamespace] = {}
        self.services: dict[str, SimpleNamespace] = {}
        world = SimpleNamespace(
            deployment=SimpleNamespace(
                clusters=clusters, recorders=self.recorders, cluster_services=self.services
            ),
            mirrors=self.mirrors,
            recorder=self.events,
        )
        self.deaths = UnexpectedExits(world, lambda: list(self.faults), [])
        self.deaths.all_started()

    @staticmethod
    def broker(name: str) -> SimpleNamespace:
        words = lambda *, lines: [f"line {n} {'and more ' * 50}" for n in range(4 - lines, 4)]  # noqa: E731
        return SimpleNamespace(
            cluster=name,
            id=1,
            state="running",
            log="its log",
            exit_status=None,
            last_words=words,
            confines=None,
        )

    def failed_over(self) -> None:
        self.faults = [AWAY]
        self.brokers["A"].state, self.mirrors["A->B"].alive = "stopped", False

    def reversed(self) -> None:
        self.brokers["A"].state = "running"
        self.mirrors["B->A"] = SimpleNamespace(alive=True)
        self.faults = []


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.failed_over()
    assert made.deaths.look() == []
    return made


def test_brokers_that_a_reversal_finds_dead_are_no_deaths(scene: Scene) -> None:
    scene.faults = [REVERSE]
    assert scene.deaths.look() == []


def test_a_death_after_the_reversal_is_unexpected(scene: Scene) -> None:
    scene.reversed()
    assert scene.deaths.look() == []
    scene.brokers["A"].state, scene.mirrors["B->A"].alive = "stopped", False
    exits = scene.deaths.look()
    assert [said.split(";")[0] for said in exits] == [
        "broker A/1 died by itself (exit status unknown)",
        "the mirror of B->A died by itself",
    ]
    assert scene.deaths.clusters == {"A"}


def test_a_brokers_death_tells_its_status_and_its_last_words_shortened() -> None:
    scene = Scene()
    broker = scene.brokers["B"]
    broker.state, broker.exit_status = "stopped", -9
    broker.confines = SimpleNamespace(memory=lambda: SimpleNamespace(killed=True))
    (exits,) = scene.deaths.look()
    assert exits.startswith(
        "broker B/1 died by itself (exit status 137, SIGKILL, because its container was out of "
        "memory); "
    )
    assert "line 2" in exits
    assert "line 3" in exits
    assert exits.endswith("see its log")
    assert len(exits) < 500
    ((kind, subject, data),) = scene.events
    assert (kind, subject, data["by"], data["status"], data["out_of_memory"]) == (
        "broker-died",
        "B/1",
        "itself",
        -9,
        True,
    )
    assert [word[:6] for word in cast(list[str], data["last_words"])] == ["line 2", "line 3"]


def test_a_recorders_death_is_an_event_and_reported_once() -> None:
    scene = Scene()
    words = lambda *, lines: ["the last line"][:lines]  # noqa: E731
    scene.recorders["A"] = SimpleNamespace(alive=True, log="its log", last_words=words)
    assert scene.deaths.look() == []
    scene.recorders["A"].alive = False
    assert scene.deaths.look() == ["the recorder of A died by itself; see its log"]
    assert scene.deaths.look() == []
    assert scene.deaths.recorders == {"A"}
    ((kind, subject, data),) = scene.events
    assert (kind, subject, data["last_words"]) == ("recorder-died", "A", ["the last line"])


def test_a_services_death_is_an_event_and_reported_once() -> None:
    scene = Scene()
    service = SimpleNamespace(
        cluster="A",
        name="store",
        alive=True,
        exit_status=3,
        log="its log",
        last_words=lambda *, lines: ["the last line"][:lines],
    )
    scene.services["A->store"] = service
    assert scene.deaths.look() == []
    service.alive = False
    assert scene.deaths.look() == ["service store of A died by itself (exit status 3); see its log"]
    assert scene.deaths.look() == []
    ((kind, subject, data),) = scene.events
    assert (kind, subject, data["service"], data["status"]) == ("service-died", "A", "store", 3)


def test_a_death_is_reported_without_an_engine_to_ask() -> None:
    def gone() -> None:
        raise EnvironmentFailure("no engine answers")

    scene = Scene()
    broker = scene.brokers["B"]
    broker.state, broker.exit_status, broker.confines = "stopped", -9, SimpleNamespace(memory=gone)
    (exits,) = scene.deaths.look()
    assert "SIGKILL" in exits


@pytest.mark.parametrize(
    ("status", "starved", "said"),
    [
        (1, None, "exit status 1"),
        (0, False, "exit status 0"),
        (-15, False, "exit status 143, SIGTERM"),
        (-9, None, "exit status 137, SIGKILL, which is also what a kernel out of memory sends"),
        (-9, False, "exit status 137, SIGKILL, not because its container was out of memory"),
        (-100, False, "exit status 228, signal 100"),
    ],
)
def test_how_a_broker_ended(status: int, starved: bool | None, said: str) -> None:
    assert how(status, starved=starved) == said


def test_the_failback_explains_what_it_ends(scene: Scene) -> None:
    scene.reversed()
    scene.deaths.look()
    scene.faults = [FaultSpec(id="home", fault="failover-planned", target="B->A", at=0, duration=0)]
    scene.mirrors["B->A"].alive = False
    assert scene.deaths.look() == []


# When a client goes on, as the recorder sees it: by what it has done, or by its positions.


ONE, TWO = ("A.t", 0), ("A.t", 1)


def end(tp: TopicPartition, offset: int) -> Watermark:
    return Watermark(
        time=1, returned=2, cluster="A", leader=3, topic=tp[0], partition=tp[1], log_start=0,
        last_stable=offset, high_watermark=offset,
    )  # fmt: skip


class Consumer:
    """A consumer's positions and the ends of its partitions, which tests move."""

    def __init__(self) -> None:
        self.at = {ONE: 0, TWO: 5}
        self.ends = {ONE: end(ONE, 5), TWO: end(TWO, 5)}
        self.client = _Client(
            name="c",
            within=1.0,
            cluster=lambda: "A",
            positions=lambda: dict(self.at),
            ends=lambda: dict(self.ends),
        )
        self.client.begin()


def test_a_producer_goes_on_once_it_has_done_more() -> None:
    done = [3]
    client = _Client(name="p", within=1.0, cluster=lambda: "A", done=lambda: done[0])
    client.begin()
    assert not client.look()
    done[0] = 4
    assert client.look()


def test_a_consumer_has_to_move_in_every_partition_that_it_has_not_read_to_the_end() -> None:
    consumer = Consumer()
    (waited,) = consumer.client.waits_for()
    assert (waited.topic, waited.partition, waited.position, waited.end) == ("A.t", 0, 0, 5)
    assert waited.leader == 3
    consumer.ends[TWO] = end(TWO, 9)
    consumer.at[ONE] = 1
    assert not consumer.client.look()
    consumer.at[TWO] = 6
    assert consumer.client.look()


def test_a_partition_without_a_record_is_not_waited_for() -> None:
    """A group commits nothing in a partition that its writer has not used yet (franz-go fills one
    with 64 KiB before the next)."""
    consumer = Consumer()
    del consumer.at[TWO]
    consumer.ends[TWO] = end(TWO, 0)
    consumer.client.begin()
    consumer.at[ONE] = 1
    assert consumer.client.look()


def test_a_slow_consumer_works_on_what_was_there_first() -> None:
    consumer = Consumer()
    consumer.ends[TWO] = end(TWO, 9)
    consumer.client.begin()
    assert not consumer.client.works()
    consumer.at[TWO] = 6
    assert consumer.client.works()
    consumer.at[TWO] = 9
    assert not consumer.client.works()
    assert not consumer.client.look()
