"""Many threads report to the display. It prints each message once, in lines that suit a CI log."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from linkflap.report.progress import (
    Counters,
    Display,
    PlainLines,
    Progress,
    Screen,
    display_for,
)


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


def test_lines(clock: Clock) -> None:
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


def test_frame(clock: Clock) -> None:
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
def test_many_threads(live: bool) -> None:
    """The refresh thread of rich and the reporting threads must not deadlock."""
    console = terminal()
    output = console.file
    assert isinstance(output, io.StringIO)
    shown: Display = Screen(console) if live else PlainLines(output)

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
    assert isinstance(display_for(io.StringIO()), PlainLines)


def test_the_default_is_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as shown:
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
    assert isinstance(display_for(Terminal()), Screen)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display_for(Terminal()), PlainLines)
