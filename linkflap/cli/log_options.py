"""Options of mirrors (`--set name=value`), and options that describe logs: their folders or
addresses, links, promotions, topics, and the mirror's guarantee.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from linkflap.cli.output import options as several
from linkflap.harness.guarantees import PRESETS
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.guarantee import Guarantee
from linkflap.harness.model.scenario import Option
from linkflap.harness.model.texts import nearest
from linkflap.harness.model.topology import LinkSpec
from linkflap.topologies.named import check_name

if TYPE_CHECKING:
    from linkflap.harness.capture.live.record import LiveLogsRequest
    from linkflap.harness.capture.logs_request import LogsRequest


def option_value(text: str) -> tuple[str, Option]:
    """Parses `name=value`; numbers and true/false get their type. Raises InputError if there is no
    `=`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(
            f"--set {text!r} is not of the form name=value, for example --set producer_ids=keep"
        )
    if value in ("true", "false"):
        return name, value == "true"
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return name, number(value)
    return name, value


def mirror_options(texts: Sequence[str]) -> dict[str, Option]:
    """All `--set` options. Raises InputError if a name is given twice."""
    given: dict[str, Option] = {}
    for name, value in map(option_value, texts):
        if name in given:
            raise InputError(
                f"--set {name} is given twice, as {given[name]} and as {value}; give it once"
            )
        given[name] = value
    return given


class Choice(click.Choice[str]):
    """A choice that names the value nearest to a wrong one."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            known = ", ".join(self.choices)
            self.fail(f"{value!r} is not one of {known}{nearest(value, self.choices)}", param, ctx)
        return value


_RATE: Final = 20.0
"""MB a second: the default of `--rate`."""


_PROMOTION: Final = re.compile(
    r"(?P<cluster>[^:]+):(?P<topic>.+)-(?P<partition>[0-9]{1,10})=(?P<offset>[0-9]{1,19})"
)


copied_logs = several(
    click.option("--logs", multiple=True, metavar="CLUSTER=DIR",
        help="Log directory of a cluster, judged without a client history."),
    click.option("--bootstrap", multiple=True, metavar="CLUSTER=HOST:PORT",
        help="A live cluster: its logs are fetched."),
    click.option(
        "--client-properties", "properties", multiple=True, metavar="CLUSTER=FILE",
        help="Client settings of a live cluster (TLS, SASL): name=value lines, as in librdkafka.",
    ),
    click.option(
        "--rate", type=click.FloatRange(min=0.001, max=1e5), metavar="MB/S",
        help="Highest fetch rate for each live cluster, by default 20.",
    ),
    click.option("--link", "links", multiple=True, metavar="'A->B'",
        help="Which cluster was mirrored to which; after a failback add 'B->A'."),
    click.option(
        "--promotion", "promotions", multiple=True, metavar="'B:TOPIC-0=123'",
        help="First offset of B's own records; not needed where the log has KIP-1279's marker.",
    ),
    click.option("--topics", default=".*", metavar="REGEX", help="Judge only these topics."),
    click.option(
        "--mirror", "preset", type=Choice([*PRESETS, "mm2", "command"]),
        help="The mirror whose guarantee applies, by default exact; the options below change parts "
        "of it.",
    ),
    click.option(
        "--set", "settings", multiple=True, metavar="NAME=VALUE",
        help="An option of --mirror mm2 (delivery, isolation, ...), or the manifest of command.",
    ),
    click.option(
        "--producer-ids", type=Choice(["keep", "negate", "complement", "region"]),
        help="How the mirror changed producer ids.",
    ),
    click.option(
        "--leader-epochs", type=Choice(["keep", "any"]),
        help="Whether mirrored batches keep the source's leader epochs.",
    ),
)  # fmt: skip
"""Adds the options that describe logs."""


class LogOptions(TypedDict):
    """The arguments that `copied_logs` adds to a command."""

    logs: Sequence[str]
    bootstrap: Sequence[str]
    properties: Sequence[str]
    rate: float | None
    links: Sequence[str]
    promotions: Sequence[str]
    topics: str
    preset: str | None
    settings: Sequence[str]
    producer_ids: str | None
    leader_epochs: str | None


def logs_request(**options: Unpack[LogOptions]) -> LogsRequest | None:
    """The request for copied logs; None if none were named. Raises InputError for unreadable
    ones."""
    if not options["logs"]:
        about = ("links", "promotions", "preset", "settings", "producer_ids", "leader_epochs")
        if any(options[name] for name in about) and not options["bootstrap"]:  # type: ignore[literal-required]
            raise InputError(
                "--link, --promotion, --mirror, --set, --producer-ids and --leader-epochs are about"
                " logs: add --logs A=DIR --logs B=DIR"
            )
        return None
    return _asked(
        {
            name: Path(where)
            for name, where in _named("--logs", options["logs"], "DIR", "/var/lib/kafka/data")
        },
        options,
    )


def live_logs_request(**options: Unpack[LogOptions]) -> LiveLogsRequest | None:
    """The request for live clusters; None if none were named. Raises InputError for unreadable
    ones."""
    if not options["bootstrap"]:
        if options["properties"] or options["rate"] is not None:
            raise InputError(
                "--client-properties and --rate are about live clusters: add --bootstrap "
                "A=HOST:PORT"
            )
        return None
    if options["logs"]:
        raise InputError("--logs and --bootstrap are two ways to get logs; give one of them")
    from linkflap.harness.capture.live.cluster import access
    from linkflap.harness.capture.live.record import LiveLogsRequest

    bootstrap = {
        name: _addresses(text)
        for name, text in _named("--bootstrap", options["bootstrap"], "HOST:PORT", "kafka:9092")
    }
    files = dict(_named("--client-properties", options["properties"], "FILE", "client.properties"))
    if strangers := files.keys() - bootstrap.keys():
        name = min(strangers)
        raise InputError(f"--client-properties names {name}, but no --bootstrap defines {name}")
    return LiveLogsRequest(
        request=_asked({name: Path(name) for name in bootstrap}, options),
        bootstrap=bootstrap,
        access={name: access(Path(file)) for name, file in files.items()},
        rate=(_RATE if options["rate"] is None else options["rate"]) * 1e6,
    )


def _named(option: str, texts: Sequence[str], what: str, example: str) -> list[tuple[str, str]]:
    """Parses the values of an option of the form CLUSTER=something; each cluster once."""
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


def _asked(named: Mapping[str, Path], options: LogOptions) -> LogsRequest:
    from linkflap.harness.capture.logs_request import LogsRequest

    given: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for text in options["promotions"]:
        match = _PROMOTION.fullmatch(text)
        if not match:
            raise InputError(
                f"--promotion {text!r} is not CLUSTER:TOPIC-PARTITION=OFFSET, for example "
                "--promotion B:orders-0=123"
            )
        offsets = given[match["cluster"], match["topic"], int(match["partition"])]
        if int(match["offset"]) in offsets:
            raise InputError(f"--promotion {text} is given twice; give it once")
        offsets.append(int(match["offset"]))
    links = [_link(text) for text in options["links"]]
    if twice := [link.name for link, count in Counter(links).items() if count > 1]:
        raise InputError(f"--link {twice[0]} is given twice; give it once")
    return LogsRequest(
        logs=named,
        links=links,
        promotions=given,
        topics=options["topics"],
        mirror_named=any(
            options[name] is not None for name in ("preset", "producer_ids", "leader_epochs")
        ),
        **_mirror(options),
    )


class _Mirror(TypedDict, total=False):
    kind: str
    options: Mapping[str, Option]
    promised: Guarantee


def _mirror(options: LogOptions) -> _Mirror:
    """The mirror of the logs, as the user described it."""
    kind = options["preset"] or "exact"
    if kind in PRESETS:
        if options["settings"]:
            raise InputError(
                "--set is about --mirror mm2 and --mirror command; of others give --producer-ids "
                "and --leader-epochs"
            )
        return {"options": _promised(kind, options)}
    if options["producer_ids"] or options["leader_epochs"]:
        raise InputError(
            f"--producer-ids and --leader-epochs are about mirrors that keep bytes; mirror {kind} "
            "has its options with --set"
        )
    from linkflap.harness.mirrors import MIRRORS
    from linkflap.harness.mirrors.command import manifest

    given = mirror_options(options["settings"])
    if kind == "command":
        promised = manifest.read(manifest.path_of(given), runnable=False).promised
        return {"kind": kind, "options": given, "promised": promised}
    MIRRORS[kind].options(given)
    return {"kind": kind, "options": given}


def _promised(kind: str, options: LogOptions) -> dict[str, str]:
    """The options of the guarantee of a mirror that keeps bytes: those of --mirror, changed by the
    more specific options."""
    promises = {**PRESETS[kind]}
    promises |= {
        name: value
        for name in ("producer_ids", "leader_epochs")
        if (value := options[name]) is not None
    }
    return {
        name: str(value)
        for name, value in promises.items()
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
