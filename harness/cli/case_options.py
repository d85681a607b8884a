"""Options of `linkflap case`: store, releases, client, protocol, count, shard."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from linkflap.harness.model.errors import InputError

if TYPE_CHECKING:
    from linkflap.chaos.cases.case import Case
    from linkflap.chaos.cases.variant import Client, Protocol, Variant

STORE: Final = Path("cases")


_SHARD: Final = re.compile(r"(\d+)/(\d+)")


store_option = click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    default=STORE,
    show_default=True,
    help="Directory of the stored results.",
)


kafka_option = click.option(
    "--kafka",
    "kafkas",
    multiple=True,
    metavar="VERSION",
    help="A release, or a directory of jars; may be repeated.",
)


client_option = click.option(
    "--client",
    "--clients",
    "client",
    type=click.Choice(["librdkafka", "java", "wire"]),
    help="Client that writes; by default the first client of the case.",
)


protocol_option = click.option(
    "--transactions",
    type=click.Choice(["V1", "V2"]),
    help="Transaction protocol (KIP-890); by default that of a new cluster of the release.",
)


count_option = click.option(
    "--count",
    type=click.IntRange(1, 1000),
    help="Number of runs; by default as many as the case needs for an answer.",
)


def shard_option(text: str) -> tuple[int, int]:
    found = _SHARD.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise InputError(
            f"--shard {text!r} is not of the form I/N with I from 1 to N, for example 2/4"
        )
    return int(found[1]), int(found[2])


def variant_of(each: Case, kafka: str, client: str | None, transactions: str | None) -> Variant:
    """The variant to play. V2 is the default of a Kafka 4 cluster, so its results are stored like
    those without --transactions."""
    from linkflap.chaos.cases.case import VERSION, number
    from linkflap.chaos.cases.runner import version_of
    from linkflap.chaos.cases.variant import Variant

    chosen = cast("Client", client or each.clients[0])
    if transactions != "V2":
        return Variant(
            kafka=kafka,
            client=chosen,
            transactions=cast("Protocol", transactions or each.protocols[0]),
        )
    variant = Variant(kafka=kafka, client=chosen)
    release = VERSION.match(version_of(variant))
    if release and number(release.group()) < (4, 0, 0):
        raise InputError(
            f"transactions V2 came with Kafka 4.0.0, and {kafka} is older; omit --transactions, or "
            "name a later --kafka"
        )
    return variant
