"""KIP-1279 itself: describe says MIRRORING, lag 0, of a partition whose source does not answer."""

from __future__ import annotations

import time
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.mirrors.cluster_mirroring.answers import MIRRORING
from linkflap.harness.model.wait import pause, until

MIRRORED, BEHIND = 100, 50
OLD: Final = 5.0
"""Seconds that an answer may be old: metadata is refreshed every two."""
WATCHED: Final = 15.0
OWNER: Final = "case"


@case("KIP-1279-lag-of-a-silent-source", PAIR, claim={"silent": True}, control={"silent": False})
def lag_of_a_silent_source(bench: Bench, *, silent: bool) -> Observation:
    """Requests reach A, and no answer comes back; what describe says is held against the bytes of
    both logs."""
    topic = bench.topic()
    link = bench.deployment.links["A->B"]
    bench.write(topic, [b"%d" % n for n in range(MIRRORED)])
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1)
        until(
            lambda: _end(bench, topic, "B") == MIRRORED,
            within=WITHIN,
            what="B to have all",
            every=0.2,
        )
        try:
            if silent:
                link.add_toxic("timeout", "responses", {"timeout": 0}, owner=OWNER)
            bench.write(topic, [b"behind %d" % n for n in range(BEHIND)])
            pause(OLD, lambda: False)
            described: dict[str, int] = {}
            missing = BEHIND
            end = time.monotonic() + WATCHED
            while time.monotonic() < end:
                for row in mirror.rows():
                    words = f"{row.state}, lag {row.lag}"
                    described[words] = described.get(words, 0) + 1
                missing = min(missing, _end(bench, topic, "A") - _end(bench, topic, "B"))
                pause(0.2, lambda: False)
        finally:
            link.clear(owner=OWNER)
    facts = {"missing_on_B_all_the_time": missing, "describe": described}
    return Observation(shown=missing > 0 and f"{MIRRORING}, lag 0" in described, facts=facts)


def _end(bench: Bench, topic: str, cluster: str) -> int:
    """Where a log ends, by its bytes."""
    return max((batch.last_offset + 1 for batch in bench.log(topic, cluster=cluster)), default=0)
