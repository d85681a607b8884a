"""docs/track-record.md, from stored results alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from linkflap.chaos.cases.case import Case, Kind, Outcome, number
from linkflap.chaos.cases.results import (
    CaseTally,
    StoredResult,
    in_words,
    release_order,
    sorted_tallies,
    tallies,
)

_HEAD: Final = """\
# Track record of the cases

Made by `python docs/make.py` from the results in `chaos/cases/stored` alone. [cases.md](cases.md)
defines a case and how to run one. Rates are k of n runs, with the interval that contains the true
rate with 95 % confidence (Wilson). In every counted run the control was played too, and behaved as
the case declares. If fewer runs than a NOT REPRODUCED of the case takes show nothing, the result is
UNKNOWN. For a NOT REPRODUCED the smallest schedule was tried, against a control. If the anomaly
should have shown, the case also has the observation.
"""
_KINDS: Final[Mapping[Kind, str]] = {
    "defect": "Defects of released Kafka, MirrorMaker 2 and clients",
    "limit": "Documented or accepted limits",
    "proposal": "Concerns, proposals and builds of KIP-1279 and KIP-1163",
    "guarantee": "Guarantees that must hold",
}
"""Kind -> heading."""
_RELIED_ON: Final = ("98", "360", "447", "545", "618", "848", "890", "932", "966", "1228")
"""KIPs whose guarantees clients rely on."""
_WRITERS: Final = (
    ("wire", "V1"),
    ("wire", "V2"),
    ("librdkafka", "V1"),
    ("librdkafka", "V2"),
    ("java", "V1"),
    ("java", "V2"),
)
_TRIED: Final = "It did not show where it should. What was tried: "
_DECIDED: Final = """\
## Which release decides

Cases that were reproduced on some releases and not on others, by any client, in as many runs as an
answer takes.
"""
_GUARANTEES: Final = """\
## Which guarantee holds with which client and transaction protocol

V2: the cluster has `transaction.version` 2, the default of Kafka 4. V1: Kafka 3, or a lowered
feature. librdkafka uses V1 with both. Each cell has the number of runs that showed the anomaly,
over all releases on which the guarantee is expected to hold; bold if any did. No entry: the case
cannot be played in this way. *open*: it can, and the stored results are too few for an answer.
"""


def render(rows: Sequence[StoredResult], cases: Mapping[str, Case]) -> str:
    """The page."""
    found = {key: tally for key, tally in tallies(rows).items() if key[0] in cases}
    parts = [_HEAD, _summary(found, cases), _by_release(found, cases), _by_client(found, cases)]
    for kind, title in _KINDS.items():
        names = [name for name, case in cases.items() if case.kind == kind]
        parts.append(f"## {title}\n" + "\n".join(_section(cases[name], found) for name in names))
    return "\n".join(parts)


def _summary(
    found: Mapping[tuple[str, str, str, str], CaseTally], cases: Mapping[str, Case]
) -> str:
    """How many cases there are, and how many of each kind were reproduced."""
    reproduced = {key[0] for key, tally in found.items() if tally.outcome is Outcome.REPRODUCED}
    played = {key[0] for key, tally in found.items() if tally.runs}
    by_kind = Counter(case.kind for case in cases.values())
    shown = Counter(cases[name].kind for name in reproduced)
    run = Counter(cases[name].kind for name in played)
    lines = ["| | cases | played | reproduced |", "|---|---|---|---|"]
    lines += [f"| {kind} | {by_kind[kind]} | {run[kind]} | {shown[kind]} |" for kind in _KINDS]
    lines.append(f"| together | {len(cases)} | {len(played)} | {len(reproduced)} |")
    return "\n".join(lines) + "\n"


def _by_release(
    found: Mapping[tuple[str, str, str, str], CaseTally], cases: Mapping[str, Case]
) -> str:
    """One row for each case that shows on some releases and not on others."""
    lines = ["| case | shows on | does not show on |", "|---|---|---|"]
    for case in cases.values():
        mine = [
            tally for key, tally in found.items() if key[0] == case.name and _is_answer(tally, case)
        ]
        shown = {tally.version for tally in mine if tally.shown}
        others = {tally.version for tally in mine} - shown
        if shown and others:
            lines.append(f"| `{case.name}` | {_listed(shown)} | {_listed(others)} |")
    return _DECIDED + "\n" + "\n".join(lines) + "\n"


def _listed(versions: Iterable[str]) -> str:
    return ", ".join(sorted(versions, key=release_order))


def _by_client(
    found: Mapping[tuple[str, str, str, str], CaseTally], cases: Mapping[str, Case]
) -> str:
    """One row for each case of a KIP that clients rely on."""
    titles = " | ".join(f"{who}, {protocol}" for who, protocol in _WRITERS)
    lines = [f"| KIP | case | {titles} |", "|---" * (2 + len(_WRITERS)) + "|"]
    for kip in _RELIED_ON:
        for case in cases.values():
            if kip == relied_on(case):
                mine = [tally for key, tally in found.items() if key[0] == case.name]
                cells = " | ".join(_cell(case, mine, who, protocol) for who, protocol in _WRITERS)
                lines.append(f"| {kip} | `{case.name}` | {cells} |")
    return _GUARANTEES + "\n" + "\n".join(lines) + "\n"


def relied_on(case: Case) -> str:
    """The number of the KIP whose guarantee a case holds, by its name or else by its first source;
    empty: none of them."""
    if case.kind != "guarantee" and not case.name.startswith("KIP-1228"):
        return ""
    named = re.match(r"KIP-(\d+)", case.name)
    sourced = re.search(r"KIP-(\d+)", case.sources[0])
    return next((one[1] for one in (named, sourced) if one and one[1] in _RELIED_ON), "")


def _cell(case: Case, mine: Sequence[CaseTally], who: str, protocol: str) -> str:
    of_it = [
        one
        for one in mine
        if one.client == who and protocol == _spoken(one) and one.expected is False
    ]
    known = [one for one in of_it if _is_answer(one, case)]
    if known:
        shown, runs = sum(one.shown for one in known), sum(one.runs for one in known)
        return f"**{shown} of {runs}**" if shown else f"0 of {runs}"
    return "*open*" if who in case.clients and _is_played_with(case, protocol) else ""


def _is_answer(tally: CaseTally, case: Case) -> bool:
    return tally.shown > 0 or (tally.outcome is Outcome.NOT_REPRODUCED and tally.runs >= case.runs)


def _is_played_with(case: Case, protocol: str) -> bool:
    return protocol == "V2" or "V1" in case.protocols or number(case.oldest) < (4, 0, 0)


def _spoken(tally: CaseTally) -> str:
    """The protocol that the cluster has."""
    return "V1" if tally.transactions == "V1" or release_order(tally.version) < (4, 0, 0) else "V2"


def _section(case: Case, found: Mapping[tuple[str, str, str, str], CaseTally]) -> str:
    mine = [tally for key, tally in found.items() if key[0] == case.name]
    answer = f"A NOT REPRODUCED takes {case.runs} run{'s' if case.runs > 1 else ''}."
    lines = [
        f"### {case.name}",
        "",
        f"{case.title}. Smallest schedule: {case.schedule}. {answer}",
        "",
    ]
    if not mine:
        return "\n".join([*lines, "Not played yet.", ""])
    if is_missed(mine):
        lines += [f"{_TRIED}{case.tried}.", ""]
    lines += [
        "| Kafka | client | transactions | result | expected | date |",
        "|---|---|---|---|---|---|",
    ]
    for tally in sorted_tallies(mine):
        row = (
            tally.version,
            tally.client,
            tally.transactions or "default",
            in_words(tally, case),
            _expected(tally),
            tally.date,
        )
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join([*lines, ""])


def is_missed(of_one_case: Iterable[CaseTally]) -> bool:
    """Whether a case did not show on a release on which it is expected to."""
    return any(one.expected and one.runs and not one.shown for one in of_one_case)


def _expected(tally: CaseTally) -> str:
    return {None: "", True: "shows", False: "does not show"}[tally.expected]
