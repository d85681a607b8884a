"""Shows the progress of a run. Everything goes to standard error, so that standard output stays a
document.

On a terminal: a few lines that refresh (phase, faults with a countdown, counters, lag per link),
and above them the lines of finished steps. Elsewhere (CI logs, pipes): one line per phase, fault,
heal and note, and a line of counters about every two seconds. The methods may be called from any
thread, never block on anything but the stream, and never sleep.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Totals so far: records acknowledged, transactions aborted, transactions open now, records
    read."""

    acknowledged: int = 0
    aborted: int = 0
    open: int = 0
    read: int = 0


Sign = Literal["phase", "done", "fault", "end", "note", "count"]


MARKS: Final[Mapping[str, tuple[str, str]]] = {
    "done": ("✓", "green"),
    "fault": ("⚡", "yellow"),
    "end": ("✚", "cyan"),
    "note": ("•", "blue"),
    "count": ("#", "dim"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    fault: str
    target: str
    started: float
    seconds: float | None


class Progress:
    """The state that the run has reported so far, consistent at any moment. A context manager;
    reports before it is entered or after it is left are harmless.

    `say` is called without the lock: rich's refresh thread holds its own lock while it asks for a
    frame, and a frame needs ours, so printing (which needs rich's) while holding ours would
    deadlock.
    """

    def __init__(self, clock: Callable[[], float], say: Callable[[Sign, str], None]) -> None:
        self._clock, self._say = clock, say
        self._lock = threading.Lock()
        self._began = clock()
        self._phase, self._phase_began = "", self._began
        self._faults: dict[str, Active] = {}
        self._counters = Counters()
        self._lags: dict[str, int | None] = {}
        self._rate_from: tuple[float, Counters] = (self._began, self._counters)
        self._rates = (0.0, 0.0)
        self._done = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.phase("")

    def phase(self, name: str) -> None:
        """Begins a phase, and ends the one before it."""
        with self._lock:
            over, began, now = self._phase, self._phase_began, self._clock()
            self._phase, self._phase_began, self._done = name, now, ""
        if over:
            self._say("done", f"{over}  {now - began:.1f} s")
        if name:
            self._say("phase", name)

    def fault_started(self, id: str, fault: str, target: str, seconds: float | None) -> None:
        """`seconds` is the planned duration of the fault (0: as long as it takes); None: it is
        never healed."""
        with self._lock:
            self._faults[id] = Active(
                fault=fault, target=target, started=self._clock(), seconds=seconds
            )
        planned = " for good" if seconds is None else f" for {seconds:g} s" if seconds > 0 else ""
        self._say("fault", f"{id}: {fault} on {target}{planned}")

    def fault_ended(self, id: str, outcome: str = "ended") -> None:
        with self._lock:
            active = self._faults.pop(id, None)
        if active:
            after = self._clock() - active.started
            self._say(
                "end", f"{id}: {active.fault} on {active.target} {outcome} after {after:.1f} s"
            )

    def counters(self, counters: Counters) -> None:
        with self._lock:
            now, (then, before) = self._clock(), self._rate_from
            if now - then >= 1.0:
                acknowledged, read = (
                    counters.acknowledged - before.acknowledged,
                    counters.read - before.read,
                )
                self._rates = (max(0.0, acknowledged / (now - then)), max(0.0, read / (now - then)))
                self._rate_from = (now, counters)
            self._counters = counters

    def lag(self, link: str, records: int | None) -> None:
        """The lag of the mirror of `link`; None: unknown now."""
        with self._lock:
            self._lags[link] = records

    def done(self, what: str, count: int, total: int) -> None:
        """The progress of the phase: `count` of `total`, for instance partitions judged."""
        with self._lock:
            self._done = f"{count} of {total} {what}"

    def note(self, text: str) -> None:
        """One sentence worth keeping, for instance a promotion."""
        self._say("note", text)


COUNTERS_EVERY: Final = 2.0


class PlainLines(Progress):
    """Plain lines, each with the seconds since the beginning."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock, self._line)
        self._stream = stream
        self._writing = threading.Lock()
        self._counted = self._began

    def _line(self, sign: Sign, text: str) -> None:
        # A closed pipe or stream must not end the run.
        with self._writing, contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{self._clock() - self._began:7.1f} s  {sign:<6}{text}\n")
            self._stream.flush()

    def counters(self, counters: Counters) -> None:
        super().counters(counters)
        with self._lock:
            if self._clock() - self._counted < COUNTERS_EVERY:
                return
            self._counted = self._clock()
            lags = "".join(
                f", lag {link} {'unknown' if n is None else n}" for link, n in self._lags.items()
            )
        self._line(
            "count",
            f"acknowledged {counters.acknowledged}, aborted {counters.aborted}, open "
            f"{counters.open}, read {counters.read}{lags}",
        )

    def done(self, what: str, count: int, total: int) -> None:
        super().done(what, count, total)
        with self._lock:
            if self._clock() - self._counted < COUNTERS_EVERY:
                return
            self._counted = self._clock()
        self._line("count", f"{count} of {total} {what}")


class Screen(Progress):
    """A live part at the bottom of a terminal; rich's own thread refreshes it."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock, self._print)
        self._console = console
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(
            get_renderable=self.frame,
            console=console,
            refresh_per_second=5,
            transient=True,
            redirect_stdout=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        super().__exit__(kind)
        self._live.stop()

    def _print(self, sign: Sign, text: str) -> None:
        if sign == "phase":
            return  # the live part shows it
        mark, style = MARKS[sign]
        at = f"{self._clock() - self._began:7.1f} s  "
        # the terminal is gone: that must not end the run
        with contextlib.suppress(OSError, ValueError):
            self._console.print(
                Text.assemble((at, "dim"), (f"{mark} ", style), text), soft_wrap=True
            )

    def frame(self) -> RenderableType:
        """The content of the live part now."""
        with self._lock:
            rows: list[RenderableType] = []
            if self._phase:
                done = f"  {self._done}" if self._done else ""
                self._spinner.update(
                    text=Text.assemble((self._phase, "bold"), done, (f"  {self._elapsed()}", "dim"))
                )
                rows.append(self._spinner)
            rows.extend(self._countdown(active) for active in self._faults.values())
            if self._counters != Counters():
                rows.append(self._figures())
            if self._lags:
                shown = (
                    _figure(f"lag {link}", "?" if n is None else f"{n:,}", "")
                    for link, n in self._lags.items()
                )
                rows.append(Text("  ").join(shown))
            return Group(*rows)

    def _elapsed(self) -> str:
        now = self._clock()
        return f"{now - self._phase_began:.0f} s  (run {now - self._began:.0f} s)"

    def _countdown(self, active: Active) -> Text:
        what = Text.assemble(
            ("  ⚡ ", "yellow"), (active.fault, "yellow"), f" on {active.target}  "
        )
        if active.seconds is None:
            return what.append("for good", "dim")
        gone = self._clock() - active.started
        if gone >= active.seconds:
            return what.append("healing" if active.seconds else "at work", "cyan")
        done = round(20 * gone / active.seconds)
        return (
            what.append("━" * (20 - done), "yellow")
            .append("━" * done, "grey37")
            .append(f" {active.seconds - gone:.1f} s", "dim")
        )

    def _figures(self) -> Text:
        c, (acknowledged, read) = self._counters, self._rates
        cells = [
            _figure("acknowledged", f"{c.acknowledged:,}", f"{acknowledged:,.0f}/s"),
            _figure("read", f"{c.read:,}", f"{read:,.0f}/s"),
            _figure("aborted", f"{c.aborted:,}", ""),
            _figure("open", f"{c.open:,}", ""),
        ]
        return Text("  ").join(cells)


def _figure(name: str, value: str, rate: str) -> Text:
    return Text.assemble(
        (f"  {name} ", "dim"), (value, "bold"), (f" {rate}" if rate else "", "dim")
    )


def shown_on(stream: TextIO | None = None) -> Progress:
    """The display that fits `stream` (default: standard error)."""
    stream = sys.stderr if stream is None else stream
    if stream.isatty():
        console = Console(file=getattr(stream, "unfiltered", stream))
        if not console.is_dumb_terminal:
            return Screen(console)
    return PlainLines(stream)
