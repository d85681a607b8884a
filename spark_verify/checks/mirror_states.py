"""mirror-states: what a mirror reports about itself agrees with the logs (KIP-1279: describe, and
its lag).

An operator promotes a destination when the mirror reports that nothing is left to copy. A reported
lag may be some seconds old: it is wrong if at no moment of the last `STALE` the lag was so small.
The source had at least its previously reported end, and never less in between. The destination had
at most the maximum of its reported ends since, or soon after. A destination with several brokers
reports what all in-sync replicas have; that follows the leader's end within the time after which a
slow replica leaves the ISR. A promoted partition is not mirrored any more, until its mirror is
started again, and the mirror reports that it is promoted: brokers of KIP-1279 accept writes only
then. A broker that has just become a coordinator may need some seconds to read its states.

Verbs during a run (fault mirror-verbs) were compared with the KIP's model when they were answered.
A disagreement was recorded, and is an anomaly. So is a difference between the mirror's own records
(`__mirror_state`) at the end and describe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.topology import LinkSpec
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Due, Examined, Finding, Found
from linkflap.spark_verify.facts.partition_facts import Description, LogPromotion
from linkflap.spark_verify.facts.view import PartitionView, Watermarks

FORGOTTEN: Final = "promotion-forgotten"
STALE: Final = 5 * 10**9
"""How old what a mirror says may be, in nanoseconds: more than two refreshes of its metadata (2 s
here)."""
LOADING: Final = 30 * 10**9
"""How long a mirror may not know of a promotion, in nanoseconds: until another coordinator is
elected and has read its states."""


def ended_by(view: PartitionView, description: Description) -> Iterator[LogPromotion]:
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
    spans: list[tuple[LogPromotion, list[Description]]] = []
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
        yield Found.at(
            FORGOTTEN,
            promotion.cluster,
            promotion.offset,
            state=final.state,
            promoted=promotion.offset,
            seconds=round((final.asked - first.asked) / 10**9, 1),
            time=first.asked,
            descriptions=len(longest[1]),
            writes=len(meanwhile),
            acknowledged=sum(bool((send.offsets >= 0).any()) for send in meanwhile),
        )


def _goes_on(
    span: tuple[LogPromotion, Sequence[Description]],
    promotion: LogPromotion,
    description: Description,
) -> bool:
    """Whether nothing else can have been true between two reports."""
    return span[0] == promotion and description.asked - span[1][-1].returned <= STALE


KIND: Final = "state-lie"
VERB: Final = "verb-disagreement"
RECORD: Final = "record-differs"


def kernel(view: PartitionView) -> Iterator[Finding]:
    """Holds every description against what leaders of both ends reported around it; each kind of
    lie once per link."""
    for link in dict.fromkeys(each.link for each in view.descriptions):
        mine = [each for each in view.descriptions if each.link == link]
        yield Examined(cluster=LinkSpec.parse(link).destination, origin="mirrored", count=len(mine))
        yield from _lags(view, mine)
        yield from _states(view, mine)
        yield from forgotten(view, mine)
    yield from _verbs(view)
    yield from _records(view)


def _records(view: PartitionView) -> Iterator[Found]:
    """The mirror's own final records of the topic's partitions, for each link: at no offset."""
    last = {each.link: each for each in sorted(view.comparisons, key=lambda each: each.time)}
    for each in last.values():
        if each.recorded:
            yield Found.at(
                RECORD,
                LinkSpec.parse(each.link).destination,
                -1,
                link=each.link,
                said="; ".join(each.recorded),
                time=each.time,
            )


def _verbs(view: PartitionView) -> Iterator[Found]:
    """The first disagreement of each link: it is about the mirror, and at no offset."""
    for link in dict.fromkeys(each.link for each in view.disagreements):
        first = min(
            (each for each in view.disagreements if each.link == link), key=lambda each: each.time
        )
        yield Found.at(
            VERB, LinkSpec.parse(link).destination, -1, link=link, said=first.said, time=first.time
        )


def _lags(view: PartitionView, mine: Sequence[Description]) -> Iterator[Found]:
    """The worst of the lags that were too small at every moment that they may be of."""
    lagging = [each for each in mine if each.mirrors and each.lag >= 0]
    wrong = [
        (least - each.lag, at, least, each)
        for each in lagging
        for at, least in _least(view, each)
        if least > each.lag
    ]
    if wrong:
        _, at, least, worst = max(wrong, key=lambda lie: lie[0])
        yield Found.at(
            KIND,
            LinkSpec.parse(worst.link).destination,
            at,
            how=f"it was {least} offsets behind or more for {STALE // 10**9} s",
            link=worst.link,
            state=worst.state,
            lag=worst.lag,
            least=least,
            time=worst.asked,
            descriptions=len(wrong),
        )


def _least(view: PartitionView, description: Description) -> Iterator[tuple[int, int]]:
    """(what the destination had at most, how many offsets it was behind at least) from `STALE`
    before a description until it was given; nothing where samples do not say."""
    source, destination = LinkSpec.parse(description.link).ends
    here, there = view.watermarks.get(destination), view.watermarks.get(source)
    if here is None or there is None:
        return
    since = description.asked - STALE
    brokers = {cluster.name: cluster.brokers for cluster in view.topology.clusters}
    until = description.returned + (STALE if brokers.get(destination, 1) > 1 else 0)
    if any(
        t.cluster in (source, destination) and since - STALE <= t.time <= until + STALE
        for t in view.truncations
    ):
        return
    theirs, ours = _had(there, since, description.returned), _had(here, since, until, closed=True)
    if len(theirs) and len(ours):
        yield int(max(ours)), int(min(theirs)) - int(max(ours))


def _had(marks: Watermarks, since: int, until: int, *, closed: bool = False) -> Sequence[int]:
    """The high watermarks reported from the last before `since` up to the first after `until`; none
    where nothing is from before.

    `closed`: none either where nothing is from after.
    """
    known = np.flatnonzero(marks.high_watermark >= 0)
    before = known[marks.returned[known] <= since]
    after = known[marks.time[known] >= until]
    if not len(before) or (closed and not len(after)):
        return ()
    last = int(after[0]) if len(after) else int(known[-1])
    rows = known[(known >= before[-1]) & (known <= last)]
    return list(map(int, marks.high_watermark[rows]))


def _states(view: PartitionView, mine: Sequence[Description]) -> Iterator[Found]:
    """Reported as mirrored long after it was promoted, with no mirror started since."""
    wrong = [
        (each, promotion) for each in mine if each.mirrors for promotion in ended_by(view, each)
    ]
    if wrong:
        first, promotion = wrong[0]
        yield Found.at(
            KIND,
            promotion.cluster,
            promotion.offset,
            how="it had been promoted, and no mirror was started since",
            state=first.state,
            lag=first.lag,
            time=first.asked,
            descriptions=len(wrong),
        )


def _due(scenario: Scenario, _promotions: Sequence[LogPromotion]) -> Due:
    if not scenario.mirror.guarantee.describes_itself:
        return ()
    return {(link.destination, "mirrored") for link in scenario.topology.links}


CHECK = Check(
    name="mirror-states",
    guarantee="""The state and lag that a mirror reports for a partition agree with the logs of both
        ends, and with its promotion.""",
    source="KIP-1279: describe, and the lag by which an operator decides to fail over",
    wire="""Only how many writes were asked for, and acknowledged, while the mirror had forgotten a
        promotion.""",
    inputs={"sends", "watermarks", "promotions"},
    anomalies=(
        AnomalyKind(
            name=KIND,
            meaning="""A mirror reported a smaller lag for a partition than it had at any moment of
                the last 5 s, or reported it as mirrored 5 s or more after its promotion. The offset
                is the destination's end.""",
            sentence=("the mirror reported {tp} on {cluster} as {state} with lag {lag}; {how}"),
            alone="whoever relies on it for a failover loses what it leaves out",
            smallest="A had 2 offsets and B 1 for 6 s, and the mirror reported lag 0: at offset 1.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=FORGOTTEN,
            meaning="""After a promotion, and with no mirror started since, the mirror reported for
                30 s or more a state that is neither promoted nor mirrored (UNKNOWN, for example).
                KIP-1279's brokers refuse writes to such a partition (READ_ONLY_TOPIC, 134).""",
            sentence="""the mirror reported {tp} on {cluster}, promoted at offset {promoted}, as
                {state} for {seconds} s; {acknowledged} of {writes} writes meanwhile were
                acknowledged""",
            counted="promotion was forgotten|promotions were forgotten",
            alone="its clients cannot write, and a failback may be refused",
            smallest="""B was promoted at offset 1, and the mirror reported UNKNOWN for 30 s: at
                offset 1.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name=VERB,
            meaning="""By the model of the KIP, no state of the mirror allows the answer to a verb,
                or the verb did not change the state as it should have; or a broker did not refuse a
                write to a mirrored partition. The anomaly names the first partition of an affected
                topic.""",
            sentence="""the mirror of {link} took a verb about {tp} on {cluster} as its model does
                not: {said}""",
            counted="""mirror took verbs as its model does not|mirrors took verbs as their model
                does not""",
            alone="what an operator asks of the mirror may not be what it does",
            smallest="a topic is paused, and pausing it again is accepted: nowhere on B.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=RECORD,
            meaning="""At the end of a run, when everything was copied, the latest record of
                `__mirror_state` about a partition differed from describe's answer for 20 s. The
                anomaly names the first partition of the topic.""",
            sentence="""the mirror of {link} describes {tp} on {cluster} otherwise than it has
                recorded: {said}""",
            counted="""topic is described otherwise than recorded|topics are described otherwise
                than recorded""",
            alone="whoever loads the records next takes another state for the mirror's",
            smallest="describe says MIRRORING of t, and its last record FAILED: nowhere on B.",
            despite_torn=True,
        ),
    ),
    kernel=kernel,
    unit="descriptions",
    due_at=_due,
    when="what is mirrored, by a mirror that describes itself",
    time_based=True,
)
