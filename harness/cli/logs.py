"""Command line for logs that linkflap did not record, and for looking closer.

`verify --logs` and `verify --bootstrap`, `forensics`, `explain`.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

import click
import msgspec

from linkflap.harness.cli import completion
from linkflap.harness.guarantees.copied import PRESETS
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import LinkSpec
from linkflap.topologies.legal import check_name

if TYPE_CHECKING:
    from linkflap.harness.capture.folders import Asked, Folder
    from linkflap.harness.capture.live.record import LiveAsked
    from linkflap.spark_verify.read.captures import Captured

Command = TypeVar("Command", bound=Callable[..., Any])
_RATE: Final = 20.0
"""MB a second: the default of `--rate`."""
_PROMOTION: Final = re.compile(
    r"(?P<cluster>[^:]+):(?P<topic>.+)-(?P<partition>\d+)=(?P<offset>\d+)"
)
_OPTIONS: Final = (
    click.option("--logs", multiple=True, metavar="CLUSTER=DIR",
        help="Logs of a cluster, to be judged without a history."),
    click.option("--bootstrap", multiple=True, metavar="CLUSTER=HOST:PORT",
        help="A live cluster: its logs are fetched."),
    click.option(
        "--client-properties", "properties", multiple=True, metavar="CLUSTER=FILE",
        help="How a live cluster is entered (TLS, SASL): name=value lines with librdkafka's names.",
    ),
    click.option(
        "--rate", type=click.FloatRange(min=0.001, max=1e5), metavar="MB/S",
        help="Most that is fetched from each live cluster, by default 20.",
    ),
    click.option("--link", "links", multiple=True, metavar="'A->B'",
        help="What was mirrored where; after failback add 'B->A'."),
    click.option(
        "--promotion", "promotions", multiple=True, metavar="'B:TOPIC-0=123'",
        help="First offset that is a cluster's own (KIP-1279's mark is found without).",
    ),
    click.option("--topics", default=".*", metavar="REGEX", help="Of the logs, only these topics."),
    click.option(
        "--mirror", "preset", default="exact", type=click.Choice(list(PRESETS)), show_default=True,
        help="The mirror of the logs: what it promises. The options below say it one by one.",
    ),
    click.option(
        "--producer-ids", type=click.Choice(["keep", "negate", "complement", "region"]),
        help="What the mirror of the logs made of producer ids.",
    ),
    click.option(
        "--leader-epochs", type=click.Choice(["keep", "any"]),
        help="Whether mirrored batches keep the source's leader epochs.",
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
    bootstrap: Sequence[str]
    properties: Sequence[str]
    rate: float | None
    links: Sequence[str]
    promotions: Sequence[str]
    topics: str
    preset: str
    producer_ids: str | None
    leader_epochs: str | None


def asked_logs(**options: Unpack[LogOptions]) -> Asked | None:
    """What was asked for of copied logs; None when none were named. Raises InputError for what
    cannot be read."""
    if not options["logs"]:
        if (options["links"] or options["promotions"] or _promised(options)) and not options[
            "bootstrap"
        ]:
            raise InputError(
                "--link, --promotion, --mirror, --producer-ids and --leader-epochs are about logs: "
                "add --logs A=DIR --logs B=DIR"
            )
        return None
    return _asked(
        {
            name: Path(where)
            for name, where in _named("--logs", options["logs"], "DIR", "/var/lib/kafka/data")
        },
        options,
    )


def asked_live(**options: Unpack[LogOptions]) -> LiveAsked | None:
    """What was asked for of live clusters; None when none were named. Raises InputError for what
    cannot be read."""
    from linkflap.harness.capture.live.properties import access
    from linkflap.harness.capture.live.record import LiveAsked

    if not options["bootstrap"]:
        if options["properties"] or options["rate"] is not None:
            raise InputError(
                "--client-properties and --rate are about live clusters: add --bootstrap "
                "A=HOST:PORT"
            )
        return None
    if options["logs"]:
        raise InputError("--logs and --bootstrap are two ways to get logs; give one of them")
    bootstrap = {
        name: _addresses(text)
        for name, text in _named("--bootstrap", options["bootstrap"], "HOST:PORT", "kafka:9092")
    }
    files = dict(_named("--client-properties", options["properties"], "FILE", "client.properties"))
    if strangers := files.keys() - bootstrap.keys():
        raise InputError(
            f"--client-properties names {min(strangers)}, of which there is no --bootstrap"
        )
    return LiveAsked(
        said=_asked({name: Path(name) for name in bootstrap}, options),
        bootstrap=bootstrap,
        access={name: access(Path(file)) for name, file in files.items()},
        rate=(_RATE if options["rate"] is None else options["rate"]) * 1e6,
    )


def _named(option: str, texts: Sequence[str], what: str, example: str) -> list[tuple[str, str]]:
    """CLUSTER=something, each cluster once."""
    named: dict[str, str] = {}
    for text in texts:
        name, equals, where = text.partition("=")
        if not equals or not name or not where or name in named:
            raise InputError(
                f"{option} {text!r} is not CLUSTER={what} with a name of its own, for example "
                f"{option} A={example}"
            )
        check_name(name)
        named[name] = where
    return list(named.items())


def _addresses(text: str) -> list[str]:
    found = [each.strip() for each in text.split(",")]
    for each in found:
        host, _, port = each.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise InputError(
                f"--bootstrap: {each!r} is not HOST:PORT, for example --bootstrap A=kafka:9092"
            )
    return found


def _asked(named: Mapping[str, Path], options: LogOptions) -> Asked:
    from linkflap.harness.capture.folders import Asked

    given: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for text in options["promotions"]:
        match = _PROMOTION.fullmatch(text)
        if not match:
            raise InputError(
                f"--promotion {text!r} is not CLUSTER:TOPIC-PARTITION=OFFSET, for example "
                "--promotion B:orders-0=123"
            )
        given[match["cluster"], match["topic"], int(match["partition"])].append(
            int(match["offset"])
        )
    links = [_link(text) for text in options["links"]]
    if twice := [link.name for link, count in Counter(links).items() if count > 1]:
        raise InputError(f"--link {twice[0]} is given twice; give it once")
    return Asked(
        logs=named,
        links=links,
        promotions=given,
        options=_promised(options),
        topics=options["topics"],
    )


def _promised(options: LogOptions) -> dict[str, str]:
    """What the mirror of the logs promises beyond their bytes: by its name, and by what is said one
    by one."""
    said = {**PRESETS[options["preset"]]}
    said |= {
        name: value
        for name in ("producer_ids", "leader_epochs")
        if (value := options[name]) is not None
    }
    return {
        name: str(value)
        for name, value in said.items()
        if (name, value) not in (("producer_ids", "keep"), ("leader_epochs", "any"))
    }


def _link(text: str) -> LinkSpec:
    with contextlib.suppress(ValueError):
        link = LinkSpec.parse(text)
        if link.source != link.destination:
            for name in link.ends:
                check_name(name)
            return link
    raise InputError(
        f"--link {text!r} is not one link between two clusters, for example --link 'A->B'"
    )


@click.command()
@click.argument(
    "folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--topics", default=".*", metavar="REGEX", help="Only these topics.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def forensics(folders: tuple[Path, ...], topics: str, as_json: bool) -> int:
    """Looks for what is wrong in any Kafka logs, by their bytes alone.

    DIR is a Kafka log directory, a folder of copied partition folders, or one with such a folder
    per broker: the logs of one cluster. Exit codes: 0 nothing was found, 1 something was, 2 nothing
    was but parts could not be read.
    """
    from linkflap.harness.report.evidence import tell
    from linkflap.spark_verify.inspect.forensics import Report, look

    last = Counter(folder.name for folder in folders)
    names = {
        folder: folder.name if folder.name and last[folder.name] == 1 else str(folder)
        for folder in folders
    }
    every = {name: _replicas(name, folder, topics) for folder, name in names.items()}
    report = Report()
    for name, (replicas, left_out) in every.items():
        look(name, replicas, report)
        report.left_out += left_out
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        listed = _listed("looked at", report.files) + _listed("not looked at", report.left_out)
        tell(report.cases, report.unreadable, report.looked, report.notes, listed=listed)
    return report.exit_code


_LISTED: Final = 20


def _listed(title: str, lines: Sequence[str]) -> str:
    """Some lines below a title; the JSON document has all of them."""
    more = (
        [f"and {len(lines) - _LISTED} more, in the document of --json"]
        if len(lines) > _LISTED
        else []
    )
    return (
        "".join([f"{title}:\n", *(f"  {line}\n" for line in [*lines[:_LISTED], *more])])
        if lines
        else ""
    )


def _replicas(cluster: str, folder: Path, topics: str) -> tuple[list[Captured], list[str]]:
    """The logs below a folder, and the partitions that are not looked at. Raises InputError when
    there is none."""
    from linkflap.harness.capture.folders import bounds, chosen, folders
    from linkflap.harness.model.topology import INTERNAL_TOPICS
    from linkflap.spark_verify.read.captures import spoken_for

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
        for captured in spoken_for(
            "", str(folder), bounds(each), {f.broker: f.segments for f in each}
        )
    ], left_out


# So that -1 is an anomaly that there is not, and no option that click does not know.
@click.command(context_settings={"ignore_unknown_options": True})
@click.argument(
    "folder",
    metavar="RUNDIR",
    type=click.Path(path_type=Path),
    shell_complete=completion.run_directories,
)
@click.argument("anomaly")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def explain(folder: Path, anomaly: str, as_json: bool) -> int:
    """Shows the evidence for one anomaly of a verdict: batch headers of both sides, records,
    operations.

    ANOMALY is its number in verdict.json, counted from 1, or check:cluster:topic-partition@offset.
    """
    from linkflap.harness.model.history import Operation
    from linkflap.harness.report.evidence import tell_why
    from linkflap.harness.report.operations import label
    from linkflap.harness.rundir import RunReader
    from linkflap.spark_verify.inspect.explain import explain as look_closer
    from linkflap.spark_verify.inspect.explain import recorded
    from linkflap.spark_verify.verdict.sentences import labels

    explanation = look_closer(folder, anomaly)
    if as_json:
        click.echo(msgspec.json.encode(explanation))
    else:
        operations = RunReader(recorded(folder)).each(Operation, [])
        known = labels((row.process, row.client) for row in operations)
        tell_why(
            explanation,
            name=lambda number: (
                f"{number} ({said})" if (said := label(known, number)) else str(number)
            ),
        )
    return 0
