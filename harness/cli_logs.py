"""Command line for logs that linkflap did not record, and for looking closer: `verify --logs`, `forensics`, `explain`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

import click

from harness.model.errors import InputError
from harness.model.topology import LinkSpec

if TYPE_CHECKING:
    from harness.capture.folders import Asked

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
