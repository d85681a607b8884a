"""The cases to reproduce again: every stored case that was reproduced, on the newest such release
(etcd's track record)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from linkflap.chaos.cases import registry
from linkflap.chaos.cases.case import Case, Outcome, number
from linkflap.chaos.cases.results import STORED, StoredResult, load, tallies
from linkflap.chaos.cases.variant import Client, Protocol, Variant
from linkflap.harness.model.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCase:
    """A case that was reproduced, with what, and how often: `shown` of `runs`."""

    case: Case
    variant: Variant
    shown: int
    runs: int


def reproduced(folder: Path = STORED) -> list[KnownCase]:
    """Every case that was reproduced, in the registry's order; play each with `runner.run_case`."""
    return of_rows(load(folder))


def of_rows(rows: Iterable[StoredResult]) -> list[KnownCase]:
    newest: dict[str, KnownCase] = {}
    for (name, version, client, transactions), tally in tallies(rows).items():
        case = registry().get(name)
        if case is None or tally.outcome is not Outcome.REPRODUCED or not _is_release(version):
            continue
        variant = Variant(
            kafka=version, client=cast(Client, client), transactions=cast(Protocol, transactions)
        )
        known = newest.get(name)
        if known is None or number(version) > number(known.variant.kafka):
            newest[name] = KnownCase(case=case, variant=variant, shown=tally.shown, runs=tally.runs)
    return [newest[name] for name in registry() if name in newest]


def _is_release(version: str) -> bool:
    try:
        number(version)
    except InputError:
        return False
    return True
