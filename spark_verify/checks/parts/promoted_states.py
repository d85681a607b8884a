"""What a mirror reports about a partition after its promotion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from linkflap.harness.model.topology import LinkSpec
from linkflap.spark_verify.checks.base import Found
from linkflap.spark_verify.facts.partition_facts import Description, Promotion
from linkflap.spark_verify.facts.view import PartitionView

FORGOTTEN: Final = "promotion-forgotten"
STALE: Final = 5 * 10**9
"""How old what a mirror says may be, in nanoseconds: more than two refreshes of its metadata (2 s
here)."""
LOADING: Final = 30 * 10**9
"""How long a mirror may not know of a promotion, in nanoseconds: until another coordinator is
elected and has read its states."""


def ended_by(view: PartitionView, description: Description) -> Iterator[Promotion]:
    """The promotion that had ended a mirror when the description was requested. A reversal onto its
    link takes it back, even one that never mirrored: its start may have been accepted."""
    back = LinkSpec.parse(description.link).reverse.name
    before = [
        p
        for p in view.promotions
        if p.link == description.link and p.time + STALE < description.asked
    ]
    if before:
        last = max(before, key=lambda p: p.time)
        again = (w for w in view.windows if w.name.reverses and w.target == back)
        if not any(last.time < w.start <= description.returned for w in again):
            yield last


def forgotten(view: PartitionView, mine: Sequence[Description]) -> Iterator[Found]:
    """The longest time in which the mirror knew nothing of a promotion, if that is `LOADING` or
    more: a state in each report that is neither promoted nor mirrored."""
    spans: list[tuple[Promotion, list[Description]]] = []
    last = -1
    for number, each in enumerate(sorted(mine, key=lambda description: description.asked)):
        promotion = next(ended_by(view, each), None)
        if promotion is None or each.mirrors or each.promoted is not False:
            continue
        if number == last + 1 and spans and _goes_on(spans[-1], promotion, each):
            spans[-1][1].append(each)
        else:
            spans.append((promotion, [each]))
        last = number
    longest = max(spans, key=lambda span: span[1][-1].asked - span[1][0].asked, default=None)
    if longest is None:
        return
    promotion, (first, *_, final) = longest[0], [longest[1][0], *longest[1]]
    if final.asked - first.asked >= LOADING:
        meanwhile = [
            send
            for send in view.sends
            if send.cluster == promotion.cluster and first.asked <= send.invoked <= final.asked
        ]
        evidence = {
            "state": final.state, "promoted": promotion.offset,
            "seconds": round((final.asked - first.asked) / 10**9, 1),
            "time": first.asked, "descriptions": len(longest[1]), "writes": len(meanwhile),
            "acknowledged": sum(bool((send.offsets >= 0).any()) for send in meanwhile),
        }  # fmt: skip
        yield Found(
            kind=FORGOTTEN,
            cluster=promotion.cluster,
            offset=promotion.offset,
            evidence=evidence,
        )


def _goes_on(
    span: tuple[Promotion, Sequence[Description]], promotion: Promotion, description: Description
) -> bool:
    """Whether nothing else can have been true between two reports."""
    return span[0] == promotion and description.asked - span[1][-1].returned <= STALE
