"""`linkflap case`: lists, shows and runs edge cases of KIPs and releases, on one release or on
many."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from linkflap.cli.output import check_keep, check_store, say
from linkflap.harness.model.errors import INVALID, UNKNOWN, VALID, InputError
from linkflap.harness.model.topology import DEFAULT_KAFKA

if TYPE_CHECKING:
    from linkflap.chaos.cases.bench import Client, TransactionProtocol, Variant
    from linkflap.chaos.cases.case import Case
    from linkflap.chaos.cases.runner import Benches, CaseResult
    from linkflap.harness.model.topology import ClusterSpec


def of_case(each: Case) -> dict[str, object]:
    """The document of a case."""
    names = (
        *("name", "title", "kind", "claim", "sources", "expected", "schedule", "reproduced"),
        *("control", "refuted", "runs", "clients", "oldest", "tried"),
    )
    words = [one.words for one in each.expected]
    return {name: getattr(each, name) for name in names} | {"expected": words}


def of_result(result: CaseResult) -> dict[str, object]:
    """The document of a case's result with one Kafka."""
    low, high = result.bounds
    return {
        "case": result.case,
        "version": result.version,
        "client": result.variant.client,
        "transactions": result.variant.transactions,
        "outcome": str(result.outcome),
        "shown": result.shown,
        "runs": result.runs,
        "low": low,
        "high": high,
        "expected": result.expected.words if result.expected else None,
        "exit_code": result.exit_code,
        "why": result.why,
        "failures": list(result.failures),
        "facts": dict(result.facts),
        "control_facts": dict(result.control_facts),
    }


STORE: Final = Path("cases")
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
like_option = click.option(
    "--like",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Clusters with the settings and services of the first one in this scenario file.",
)
count_option = click.option(
    "--count",
    type=click.IntRange(1, 1000),
    help="Number of runs; by default as many as the case needs for an answer.",
)


def variant_of(each: Case, kafka: str, client: str | None, transactions: str | None) -> Variant:
    """The variant to play. V2 is the default of a Kafka 4 cluster, so its results are stored like
    those without --transactions."""
    from linkflap.chaos.cases.bench import Variant
    from linkflap.chaos.cases.case import VERSION, number
    from linkflap.chaos.cases.runner import version_of

    chosen = cast("Client", client or each.clients[0])
    if transactions != "V2":
        return Variant(
            kafka=kafka,
            client=chosen,
            transactions=cast("TransactionProtocol", transactions or each.protocols[0]),
        )
    variant = Variant(kafka=kafka, client=chosen)
    release = VERSION.match(version_of(variant))
    if release and number(release.group()) < (4, 0, 0):
        raise InputError(
            f"transactions V2 came with Kafka 4.0.0, and {kafka} is older; omit --transactions, or "
            "name a later --kafka"
        )
    return variant


_MATRIX: Final = (
    *("3.7.0", "3.7.1", "3.8.1", "3.9.0", "3.9.2"),
    *("4.0.0", "4.0.1", "4.0.2", "4.1.0", "4.1.2", "4.2.0", "4.2.1", "4.3.0", "4.3.1", "4.4.0"),
)
"""Releases that `linkflap case matrix` plays cases on by default."""


@click.group()
def case() -> None:
    """Edge cases of KIPs and releases. Each is one command and has a rate, a control and a stored
    result.

    Exit codes of run and matrix: 0 each release behaved as expected, 1 one did not, 2 unknown, or
    something that the case needs is missing.
    """


@case.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def list_(as_json: bool) -> int:
    """Lists the cases with their stored results."""
    from linkflap.chaos.cases import registry
    from linkflap.chaos.cases.results import STORED, load, tallies

    known = tallies(load(STORED))
    if as_json:
        click.echo(json.dumps([of_case(each) for each in registry().values()]))
        return 0
    for each in registry().values():
        mine = [tally for key, tally in known.items() if key[0] == each.name]
        shown = sorted({tally.version for tally in mine if tally.shown})
        seen = (
            f"; reproduced on {', '.join(shown)}"
            if shown
            else "; played, not reproduced"
            if mine
            else "; not played yet"
        )
        click.echo(f"{each.name:34} {each.kind:9} {each.title}{seen}")
    return 0


@case.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def show(name: str, as_json: bool) -> int:
    """Shows case NAME: its claim and sources, where it is expected, how it is played, and what
    would refute it."""
    from linkflap.chaos.cases import case_named

    each = case_named(name)
    if as_json:
        click.echo(json.dumps(of_case(each)))
        return 0
    rows = {
        "claim": each.claim,
        "sources": "; ".join(each.sources),
        "expected": "; ".join(one.words for one in each.expected),
        "schedule": each.schedule,
        "REPRODUCED": each.reproduced,
        "control": each.control,
        "refuted by": each.refuted,
        "runs": f"{each.runs} for an answer",
        "clients": ", ".join(each.clients),
        "needs": each.needs or f"Kafka {each.oldest} or later",
        **({"tried": each.tried} if each.tried else {}),
        "results": f"\n{' ' * 14}".join(_seen(each)) or "none stored yet",
    }
    click.echo(f"{each.name} ({each.kind}): {each.title}\n")
    for title, text in rows.items():
        click.echo(f"  {title:11} {text}")
    return 0


def _seen(each: Case) -> list[str]:
    """The stored results of a case, as docs/track-record.md lists them."""
    from linkflap.chaos.cases.results import STORED, listed, load

    return [
        f"{tally.version} {tally.client}{f' {tally.transactions}' if tally.transactions else ''}: "
        f"{text}"
        for tally, text in listed(each, load(STORED))
    ]


@case.command()
@click.argument("name")
@kafka_option
@client_option
@protocol_option
@count_option
@store_option
@like_option
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the brokers' folders in this new folder.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def run(
    name: str,
    kafkas: Sequence[str],
    client: str | None,
    transactions: str | None,
    count: int | None,
    store: Path,
    like: Path | None,
    keep: Path | None,
    as_json: bool,
) -> int:
    """Plays case NAME on real brokers, on each --kafka in turn, and stores the results."""
    from linkflap.chaos.cases import case_named
    from linkflap.chaos.cases.results import run_and_store
    from linkflap.chaos.cases.runner import check

    each = case_named(name)
    if keep is not None:
        check_keep(keep)
    variants = [
        variant_of(each, kafka, client, transactions) for kafka in kafkas or (DEFAULT_KAFKA,)
    ]
    for variant in variants:
        check(each, variant)
    check_store(store)
    with benches_in(keep, _cluster_of(like)) as benches:
        results = [
            run_and_store(each, variant, store, count=count, benches=benches, report=say)
            for variant in variants
        ]
    if as_json:
        click.echo(json.dumps([of_result(result) for result in results], default=str))
    return _worst([result.exit_code for result in results])


@case.command()
@click.argument("names", nargs=-1)
@kafka_option
@client_option
@protocol_option
@count_option
@store_option
@click.option(
    "--shard",
    metavar="K/N",
    default="1/1",
    show_default=True,
    help="Play only the K-th of N parts.",
)
@click.option("--again", is_flag=True, help="Also play cases whose results are stored already.")
def matrix(
    names: Sequence[str],
    kafkas: Sequence[str],
    client: str | None,
    transactions: str | None,
    count: int | None,
    store: Path,
    shard: str,
    again: bool,
) -> int:
    """Plays cases (all, or NAMES, also as 'KIP-1163-*') on many releases. Skips cases whose
    results are in --store already, so an interrupted matrix can be resumed.

    Without NAMES, and of several that a name matches, cases that cannot be played with --client or
    --transactions are left out.
    """
    from linkflap.chaos.cases.results import run_missing
    from linkflap.chaos.cases.runner import check
    from linkflap.suite.folder import shard as shard_of

    part, parts = shard_of(shard)
    cases = _named(names or ("*",), client, transactions)
    every = [
        (each, variant_of(each, kafka, client, transactions))
        for kafka in kafkas or _MATRIX
        for each in cases
    ]
    for each, variant in every:
        check(each, variant)
    check_store(store)
    with benches_in(None) as benches:
        played = run_missing(
            every[part::parts], store, count=count, again=again, benches=benches, report=say
        )
        return _worst(list(played))


def _named(names: Sequence[str], client: str | None, transactions: str | None) -> Collection[Case]:
    """The cases of these names and patterns, once each."""
    from linkflap.chaos.cases import cases_named

    return {
        each.name: each
        for name in names
        for found in [cases_named(name)]
        for each in found
        if len(found) == 1 or _is_played_by(each, client, transactions)
    }.values()


def _is_played_by(each: Case, client: str | None, transactions: str | None) -> bool:
    return (client is None or client in each.clients) and (
        transactions != "V1" or "V1" in each.protocols
    )


def _cluster_of(like: Path | None) -> ClusterSpec | None:
    """The first cluster of a scenario file. Raises InputError."""
    from linkflap.chaos import scenario_file

    if like is None:
        return None
    (cluster, *_) = scenario_file.read(like, seed=0).topology.clusters
    return cluster


@contextmanager
def benches_in(keep: Path | None, like: ClusterSpec | None = None) -> Iterator[Benches]:
    """Deployments in the folder `keep`, or in a temporary folder, which is removed even if this
    process is killed."""
    from linkflap.chaos.cases.runner import Benches
    from linkflap.harness.machine import cleanup

    if keep is not None:
        with Benches(keep, keep=True, like=like) as benches:
            yield benches
        return
    with (
        cleanup.temporary_folder("linkflap-case-") as temporary,
        Benches(temporary / "runs", like=like) as benches,
    ):
        yield benches


def _worst(codes: Collection[int]) -> int:
    """1 outweighs 2, and 2 outweighs 0."""
    return INVALID if INVALID in codes else UNKNOWN if UNKNOWN in codes else VALID
