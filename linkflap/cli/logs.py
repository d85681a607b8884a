"""`linkflap forensics` looks for damage in any Kafka logs; `linkflap explain` shows the evidence
for an anomaly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from linkflap.cli import completion

if TYPE_CHECKING:
    from linkflap.harness.capture.logs_request import Folder
    from linkflap.spark_verify.read.captures import CapturedReplica


@click.command()
@click.argument(
    "folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--topics", default=".*", metavar="REGEX", help="Only these topics.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def forensics(folders: tuple[Path, ...], topics: str, as_json: bool) -> int:
    """Looks for damage in Kafka logs, from their bytes alone.

    DIR has the logs of one cluster: a Kafka log directory, a folder of copied partition folders, or
    a folder with one of these for each broker. Exit codes: 0 found nothing, 1 found something,
    2 found nothing, but could not read all parts.
    """
    from linkflap.report.evidence import tell
    from linkflap.spark_verify.inspect.forensics import ForensicReport, look

    last = Counter(folder.name for folder in folders)
    names = {
        folder: folder.name if folder.name and last[folder.name] == 1 else str(folder)
        for folder in folders
    }
    every = {name: _replicas(name, folder, topics) for folder, name in names.items()}
    report = ForensicReport()
    for name, (replicas, left_out) in every.items():
        look(name, replicas, report)
        report.left_out += left_out
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        listed = _listed("looked at", report.files) + _listed("not looked at", report.left_out)
        tell(
            report.cases,
            report.unreadable,
            report.looked,
            report.notes,
            unknown=report.unknown,
            listed=listed,
        )
    return report.exit_code


_LISTED: Final = 20


def _listed(title: str, lines: Sequence[str]) -> str:
    """The first lines below a title; the JSON document has all of them."""
    from linkflap.report.document import first_of

    return "".join(
        [f"{title}:\n", *(f"  {line}\n" for line in first_of(lines, _LISTED))] if lines else ()
    )


def _replicas(cluster: str, folder: Path, topics: str) -> tuple[list[CapturedReplica], list[str]]:
    """The logs below a folder, and the partitions that are left out. Raises InputError if there is
    none."""
    from linkflap.harness.capture.folders import bounds, folders
    from linkflap.harness.capture.logs_request import chosen
    from linkflap.harness.model.topology import INTERNAL_TOPICS
    from linkflap.spark_verify.read.captures import captured_replicas

    every = folders(cluster, folder)
    found = chosen(every, topics, own=INTERNAL_TOPICS)
    left_out = sorted(
        {f"{cluster} {f.topic}-{f.partition}" for f in every}
        - {f"{cluster} {f.topic}-{f.partition}" for f in found}
    )
    same: dict[tuple[str, int], list[Folder]] = defaultdict(list)
    for each in found:
        same[each.tp].append(each)
    return [
        captured
        for each in same.values()
        for captured in captured_replicas(
            "", str(folder), bounds(each), {f.broker: f.segments for f in each}
        )
    ], left_out


# Makes click read -1 as an (unknown) anomaly, not as an unknown option.
@click.command(context_settings={"ignore_unknown_options": True})
@click.argument(
    "folder",
    metavar="RUNDIR",
    type=click.Path(path_type=Path),
    shell_complete=completion.run_directories,
)
@click.argument("anomaly", default="")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def explain(folder: Path, anomaly: str, as_json: bool) -> int:
    """Shows the evidence for one anomaly of a verdict.

    It prints the batch headers of both sides, records, and operations.

    ANOMALY is its number in verdict.json, counted from 1, or check:cluster:topic-partition@offset.
    Without it, all anomalies are listed with their numbers.
    """
    from linkflap.harness.model.history import Operation
    from linkflap.harness.rundir import RunReader
    from linkflap.report.evidence import list_anomalies, write_explanation
    from linkflap.report.timeline import label
    from linkflap.spark_verify.inspect.explain import anomalies_of, recorded
    from linkflap.spark_verify.inspect.explain import explain as look_closer
    from linkflap.spark_verify.verdict.sentences import labels

    if not anomaly:
        anomalies = anomalies_of(folder)
        if as_json:
            click.echo(msgspec.json.encode(anomalies))
        else:
            list_anomalies(anomalies)
        return 0
    explanation = look_closer(folder, anomaly)
    if as_json:
        click.echo(msgspec.json.encode(explanation))
    else:
        operations = RunReader(recorded(folder)).each(Operation, [])
        known = labels((row.process, row.client) for row in operations)
        write_explanation(
            explanation,
            name=lambda number: (
                f"{known_as} ({number})" if (known_as := label(known, number)) else str(number)
            ),
        )
    return 0
