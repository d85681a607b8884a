"""The result of a run as a table: the counts of each check, the allowed anomalies with their
reasons, and the paths of the files."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Final, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.texts import in_one_line
from linkflap.harness.model.verdict import Anomaly, CheckResult, Document, Verdict
from linkflap.harness.rundir import RunReader
from linkflap.report.document import era_lines, in_short, read

STYLES: Final[Mapping[Verdict, str]] = {
    Verdict.NOT_DUE: "dim",
    Verdict.VALID: "green",
    Verdict.UNKNOWN: "yellow",
    Verdict.INVALID: "red",
}
_SHOWN: Final = 10
_MOST_ERAS: Final = 24
_MOST_LINES: Final = 20
_UNITS: Final = ("records", "batches", "transactions", "acknowledgements")
_WIDTH_OF_A_LOG: Final = 130
_ROOM_FOR_REASONS: Final = 110


def show(
    document: Mapping[str, object],
    folder: Path,
    stream: TextIO | None = None,
    *,
    kept: tuple[Path, ...] | None = None,
) -> None:
    """Writes the result to `stream` (default: standard output): fit to a terminal, else as plain
    text.

    `kept` is the folder of the judgement if that is not the run directory; empty if the judgement
    was not kept.
    """
    stream = sys.stdout if stream is None else stream
    width = None if stream.isatty() else _WIDTH_OF_A_LOG
    console = Console(
        file=getattr(stream, "unfiltered", stream),
        width=width,
        highlight=False,
        safe_box=True,
        emoji=False,
    )
    judged = read(document)
    console.print()
    wide = console.width >= _ROOM_FOR_REASONS
    console.print(_checks(judged, with_reasons=wide))
    console.print()
    if judged.eras:
        console.print(_eras(judged))
        if (more := len(era_lines(judged)) - _MOST_ERAS) > 0:
            console.print(f"... and {more:,} more eras: see the report")
        console.print()
    if not wide:
        _print(console, _reasons(judged))
    for lines in (_failovers, _clients_died, _violations, _departures):
        _print(console, lines(judged))
    console.print(_verdict(judged))
    for label, text in _where(
        folder, (folder,) if kept is None else kept, explainable=bool(judged.anomalies)
    ):
        console.print(Text.assemble((f"{label:<10}", "dim"), text), soft_wrap=True)


def _print(console: Console, lines: Iterable[Text]) -> None:
    for line in lines:
        console.print(line)


def _checks(judged: Document, *, with_reasons: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("examined", overflow="fold")
    table.add_column("anomalies", justify="right", no_wrap=True)
    table.add_column("allowed", justify="right", no_wrap=True)
    if with_reasons:
        table.add_column("reason", overflow="fold")
    for check in judged.checks:
        examined = (
            ", ".join(f"{where} {count:,}" for where, count in check.examined.items())
            or "nothing to examine"
        )
        found = Text(f"{check.anomalies:,}", style="red bold" if check.anomalies else "")
        cells = [
            Text(check.name),
            Text(check.verdict.value, style=STYLES[check.verdict]),
            Text(examined),
            found,
            Text(f"{check.allowed:,}"),
        ]
        table.add_row(*cells, *([Text(_reason(check))] if with_reasons else []))
    return table


def _eras(judged: Document) -> Table:
    """One line per cluster and era: its origin, the records compared, and the verdict."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("cluster", "era", "verdict"):
        table.add_column(name, no_wrap=True)
    table.add_column("offsets", no_wrap=True)
    table.add_column("compared", overflow="fold")
    table.add_column("anomalies", justify="right", no_wrap=True)
    for era in era_lines(judged)[:_MOST_ERAS]:
        compared = (
            ", ".join(f"{unit} {count:,}" for unit, count in era.compared.items() if unit in _UNITS)
            or "nothing"
        )
        found = f"{era.anomalies:,}" + (f" +{era.allowed:,} allowed" if era.allowed else "")
        verdict = Text(era.verdict.value, style=STYLES[era.verdict])
        table.add_row(
            Text(era.cluster),
            Text(era.what),
            verdict,
            Text(era.offsets),
            Text(compared),
            Text(found),
        )
    return table


def _reason(check: CheckResult) -> str:
    """The reason of a verdict. Left out for a check that was not due: it is long, and the document
    and the report have it."""
    return "" if check.verdict is Verdict.NOT_DUE else check.reason


def _reasons(judged: Document) -> Iterator[Text]:
    """The reasons, for a table without room for them."""
    reasons = [
        Text.assemble((check.name, STYLES[check.verdict]), f": {reason}")
        for check in judged.checks
        if (reason := _reason(check))
    ]
    yield from reasons
    if reasons:
        yield Text()


def _failovers(judged: Document) -> Iterator[Text]:
    for failover in judged.failovers[:_MOST_LINES]:
        refused = f"; {failover.refusals}" if failover.refusals else ""
        yield Text(f"failover {failover.link} {failover.kind}: {failover.costs}{refused}")
    yield from _more(len(judged.failovers), "failovers")
    if judged.failovers:
        yield Text()


def _clients_died(judged: Document) -> Iterator[Text]:
    for death in judged.clients_died[:_MOST_LINES]:
        if death.done:
            yield Text(f"ended: {death.process}, exit status 0")
            continue
        again = "started again" if death.again else "not started again"
        process = "" if list(death.clients) == [death.process] else f"{death.process}, "
        yield Text(
            f"died: {', '.join(death.clients)} ({process}{death.how}), in flight: {death.flying}; "
            f"{again}"
        )
    yield from _more(len(judged.clients_died), "processes of clients that died")
    if judged.clients_died:
        yield Text()


def _violations(judged: Document) -> Iterator[Text]:
    if judged.causes:
        yield from _causes(judged)
        return
    numbered = [
        (n, anomaly) for n, anomaly in enumerate(judged.anomalies, start=1) if not anomaly.allowed
    ]
    for number, anomaly in numbered[:_SHOWN]:
        yield Text.assemble(
            (f"{number}. ", "dim"),
            (anomaly.kind, "red bold"),
            f"  {anomaly.where}  ",
            (_evidence(anomaly), "dim"),
        )
    more = sum(check.anomalies for check in judged.checks) - min(_SHOWN, len(judged.violations))
    if more > 0:
        yield Text(f"and {more:,} more anomalies: see the report", style="red")
    if judged.violations:
        yield Text()


def _causes(judged: Document) -> Iterator[Text]:
    """The causes with their consequences, the first cause at the top; numbers are those that
    `linkflap explain` takes."""
    for cause in judged.causes[:_SHOWN]:
        yield Text.assemble(
            (f"{cause.anomaly}. ", "dim"), (f"{cause.kind}  ", "red bold"), cause.sentence
        )
        for each in cause.consequences:
            number = f"{each.anomaly}. " if each.anomaly else ""
            yield Text.assemble(
                "   follows: ",
                (number, "dim"),
                f"{each.count:,} {each.kind}",
                (f"  {each.said}", "dim"),
            )
    if len(judged.causes) > _SHOWN:
        yield Text(f"and {len(judged.causes) - _SHOWN} more causes: see the report", style="red")
    yield Text()


def _evidence(anomaly: Anomaly) -> str:
    return ", ".join(f"{name} {in_short(value, 100)}" for name, value in anomaly.shown.items())


def _departures(judged: Document) -> Iterator[Text]:
    """One line for each kind, cluster and reason of allowed anomalies, with their number."""
    grouped: dict[tuple[str, str, str], list[Anomaly]] = defaultdict(list)
    for anomaly in judged.departures:
        grouped[anomaly.kind, anomaly.cluster, anomaly.why].append(anomaly)
    for (kind, _, why), anomalies in [*grouped.items()][:_MOST_LINES]:
        first = anomalies[0].where
        at = f"at {first}" if len(anomalies) == 1 else f"first at {first}"
        yield Text.assemble((f"allowed: {len(anomalies):,} {kind}", "yellow"), f", {at}: {why}")
    yield from _more(len(grouped), "kinds and places of allowed anomalies")
    unseen = sum(check.allowed for check in judged.checks) - len(judged.departures)
    if unseen > 0:
        yield Text(
            f"and {unseen:,} more allowed anomalies that the document leaves out", style="yellow"
        )
    if grouped:
        yield Text()


def _more(count: int, what: str) -> Iterator[Text]:
    if count > _MOST_LINES:
        yield Text(f"... and {count - _MOST_LINES:,} more {what}: see the report")


def _verdict(judged: Document) -> Text:
    about = f"  {judged.scenario}, {judged.mirror} on {judged.runtime}"
    about += f", seed {judged.seed}" if judged.runtime not in ("files", "live clusters") else ""
    first = "" if judged.reason and not judged.cause else judged.mostly_failed
    reason = "".join(f"\n{why}" for why in (first, judged.cause or judged.reason) if why)
    by_bytes = f" by bytes; {judged.by_bytes}" if judged.by_bytes else ""
    besides = "also found, but allowed" if judged.violations else "allowed"
    allowed = (f"\n{besides}: {judged.allowed}", "yellow") if judged.allowed else ""
    return Text.assemble(
        (judged.verdict.value.upper(), f"bold {STYLES[judged.verdict]}"),
        by_bytes,
        about,
        reason,
        allowed,
    )


def _where(folder: Path, kept: Sequence[Path], *, explainable: bool) -> Iterator[tuple[str, str]]:
    yield "run", str(folder)
    for at in kept:
        yield "report", str(at / "report.html")
        if explainable:
            yield (
                "explain",
                f"linkflap explain {quote(str(at))} 1    (or the number of any other anomaly)",
            )
    yield "judge", f"linkflap verify {quote(str(folder))}"
    again = _command(folder)
    if again:
        yield "run again", again


def _command(folder: Path) -> str:
    try:
        return in_one_line(RunReader(folder).run.command)
    except InputError:
        return ""
