"""Every record in a cluster's own era was planned by a client: for that cluster and that partition."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracles.plain import Place, Plain, of_send
from tests.oracles.promises import refused
from tests.oracles.story import Story, kept

EACH = frozenset({"stranger", "refused-write"})
DESPITE_TORN = frozenset({"stranger", "refused-write"})
BESIDE = "a batch of another cluster's client lies where its own clients write"


def reference(views: Sequence[Plain]) -> list[Place]:
    found: list[Place] = []
    for plain in views:
        story = Story(plain)
        for life in story.every() if plain.sends else ():
            log = story.log(life)
            planned = {uid for s in plain.sends if s.cluster == life.cluster for uid, _, _ in of_send(s)}
            for record in log.records if log else ():
                if life.native(record.offset) and record.uid not in planned and kept(life, record.offset):
                    found.append(plain.place("stranger", life.cluster, record.offset))
                if life.native(record.offset) and record.uid in refused(plain, life.cluster) and kept(life, record.offset):
                    found.append(plain.place("refused-write", life.cluster, record.offset))
    return found
