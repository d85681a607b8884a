"""Command line for logs that linkflap did not record, and for looking closer: `verify --logs`, `forensics`, `explain`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

import click
import msgspec

from harness.model.errors import InputError
from harness.model.topology import LinkSpec

if TYPE_CHECKING:
    from harness.capture.folders import Asked, Folder
    from spark_verify.plan import Captured

Command = TypeVar("Command", bound=Callable[..., Any])
_PROMOTION: Final = re.compile(r"(?P<cluster>[^:]+):(?P<topic>.+)-(?P<partition>\d+)=(?P<offset>\d+)")
_OPTIONS: Final = (
    click.option("--logs", multiple=True, metavar="CLUSTER=DIR", help="Logs of a cluster, to be judged without a history."),
    click.option("--link", "links", multiple=True, metavar="'A->B'", help="What was mirrored where; after failback add 'B->A'."),
    click.option(
        "--promotion", "promotions", multiple=True, metavar="'B:TOPIC-0=123'",
        help="First offset that is a cluster's own (KIP-1279's mark is found without).",
    ),
    click.option("--topics", default=".*", metavar="REGEX", help="Of the logs, only these topics."),
    click.option(
        "--producer-ids", default="keep", type=click.Choice(["keep", "negate", "complement", "region"]),
        help="What the mirror of the logs made of producer ids.",
    ),
)  # fmt: skip


def copied_logs(command: Command) -> Command:
    """Adds the options that say where logs are and what they are."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class LogOptions(TypedDict):
    """What `copied_logs` adds to a command."""

    logs: Sequence[str]
    links: Sequence[str]
    promotions: Sequence[str]
    topics: str
    producer_ids: str


def asked_logs(**options: Unpack[LogOptions]) -> Asked | None:
    """What was asked for; None when no logs were named. Raises InputError for what cannot be read."""
    from harness.capture.folders import Asked

    logs, links, promotions = options["logs"], options["links"], options["promotions"]
    if not logs:
        if links or promotions:
            raise InputError("--link and --promotion are about logs: add --logs A=DIR --logs B=DIR")
        return None
    named: dict[str, Path] = {}
    for text in logs:
        name, equals, where = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z0-9_-]+", name) or not where or name in named:
            raise InputError(
                f"--logs {text!r} is not CLUSTER=DIR with a name of its own, for example --logs A=/var/lib/kafka/data"
            )
        named[name] = Path(where)
    given: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for text in promotions:
        match = _PROMOTION.fullmatch(text)
        if not match:
            raise InputError(
                f"--promotion {text!r} is not CLUSTER:TOPIC-PARTITION=OFFSET, for example --promotion B:orders-0=123"
            )
        given[match["cluster"], match["topic"], int(match["partition"])].append(int(match["offset"]))
    return Asked(
        logs=named,
        links=[_link(text) for text in links],
        promotions=given,
        options={} if options["producer_ids"] == "keep" else {"producer_ids": options["producer_ids"]},
        topics=options["topics"],
    )


def _link(text: str) -> LinkSpec:
    source, arrow, destination = text.partition("->")
    if not arrow or not source or not destination or source == destination or "->" in destination:
        raise InputError(f"--link {text!r} is not one link between two clusters, for example --link 'A->B'")
    return LinkSpec(source=source, destination=destination)


@click.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--topics", default=".*", metavar="REGEX", help="Only these topics.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def forensics(folders: tuple[Path, ...], topics: str, as_json: bool) -> int:
    """Looks for what is wrong in any Kafka logs, by their bytes alone.

    DIR is a Kafka log directory, a folder of copied partition folders, or one with such a folder per broker: the logs of one
    cluster. Exit codes: 0 nothing was found, 1 something was, 2 nothing was but parts could not be read.
    """
    from harness.report.evidence import tell
    from spark_verify.forensics import Report, look

    last = Counter(folder.name for folder in folders)
    names = {folder: folder.name if folder.name and last[folder.name] == 1 else str(folder) for folder in folders}
    every = {name: _replicas(name, folder, topics) for folder, name in names.items()}
    report = Report()
    for name, replicas in every.items():
        look(name, replicas, report)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        tell(report.cases, report.unreadable, report.looked, report.explained)
    return report.exit_code


def _replicas(cluster: str, folder: Path, topics: str) -> list[Captured]:
    """The logs below a folder. Raises InputError when there is none."""
    from harness.capture.folders import bounds, chosen, folders
    from spark_verify.plan import spoken_for

    found = chosen(folders(cluster, folder), topics)
    same: dict[tuple[str, int], list[Folder]] = defaultdict(list)
    for each in found:
        same[each.place].append(each)
    return [
        captured
        for each in same.values()
        for captured in spoken_for("", str(folder), bounds(each), {f.broker: f.segments for f in each})
    ]


@click.command()
@click.argument("folder", metavar="RUNDIR", type=click.Path(path_type=Path))
@click.argument("anomaly")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def explain(folder: Path, anomaly: str, as_json: bool) -> int:
    """Shows the evidence for one anomaly of a verdict: batch headers of both sides, records, operations.

    ANOMALY is its number in verdict.json, counted from 1, or check:cluster:topic-partition@offset.
    """
    from harness.report.evidence import tell_why
    from spark_verify.explain import explain as look_closer

    explanation = look_closer(folder, anomaly)
    if as_json:
        click.echo(msgspec.json.encode(explanation))
    else:
        tell_why(explanation)
    return 0
