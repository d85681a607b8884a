"""Every record in a cluster's own era was planned by a client: for that cluster and that
partition."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracles.generations import kept
from tests.oracles.plain import Anomaly, Plain, of_send
from tests.oracles.promises import refused
from tests.oracles.story import Story

EACH = frozenset({"stranger", "refused-write"})
DESPITE_TORN = frozenset({"stranger", "refused-write"})
BESIDE = "a batch of another cluster's client is among the cluster's own batches"


def reference(views: Sequence[Plain]) -> list[Anomaly]:
    found: list[Anomaly] = []
    for plain in views:
        story = Story(plain)
        for generation in story.every() if plain.sends else ():
            log = story.log(generation)
            planned = {
                uid
                for s in plain.sends
                if s.cluster == generation.cluster
                for uid, _, _ in of_send(s)
            }
            for record in log.records if log else ():
                if (
                    generation.native(record.offset)
                    and record.uid not in planned
                    and kept(generation, record.offset)
                ):
                    found.append(plain.anomaly("stranger", generation.cluster, record.offset))
                if (
                    generation.native(record.offset)
                    and record.uid in refused(plain, generation.cluster)
                    and kept(generation, record.offset)
                ):
                    found.append(plain.anomaly("refused-write", generation.cluster, record.offset))
    return found
