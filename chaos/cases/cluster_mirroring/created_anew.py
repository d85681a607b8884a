"""KIP-1279 itself: a mirror that is created under the name of a deleted one takes the promoted
topics back."""

from __future__ import annotations

import contextlib
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.logs import records
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.wait import until

WATCHED: Final = 20.0
"""Seconds for which B's log is watched after the last verb; a mirror starts in six."""


@case("KIP-1279-created-anew", PAIR, claim={"anew": True}, control={"anew": False})
def created_anew(bench: Bench, *, anew: bool) -> Observation:
    """Nobody asks to start the mirror a second time."""
    topic = bench.topic()
    bench.write(topic, [b"of A"] * 5)
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1)
        until(
            lambda: _values(bench, topic).count("of A") == 5,
            within=WITHIN,
            what="the records of A to be on B",
            every=0.2,
        )
        mirror.stop()
        stopped = {"STOPPED": 1}
        until(
            lambda: mirror.states() == stopped,
            within=WITHIN,
            what=f"{topic} to be STOPPED",
            every=0.2,
            state=mirror.states,
        )
        bench.write(topic, [b"of B"] * 5, cluster="B")
        before = _values(bench, topic)
        mirror.admin.delete(mirror.name)
        if anew:
            mirror.create()
        with contextlib.suppress(DeadlineExceeded):
            until(
                lambda: _values(bench, topic) != before,
                within=WATCHED,
                what="B's log to change",
                every=0.5,
            )
        after, now = _values(bench, topic), dict(mirror.states())
    facts = {
        "acknowledged_by_B": before.count("of B"),
        "in_B_log_at_the_end": after.count("of B"),
        "state_at_the_end": "".join(now) or "in no mirror",
    }
    return Observation(shown=after.count("of B") < before.count("of B"), facts=facts)


def _values(bench: Bench, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in records(bench.log(topic, cluster="B"))]
