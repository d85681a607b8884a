"""log-append-time: the brokers of A stamp records (message.timestamp.type=LogAppendTime), a mirror
carries them, B takes over.

Guarantee at stake: a mirrored record has the timestamp that its source's log gave it (KIP-32;
KIP-1279 keeps bytes). MirrorMaker 2 copies timestamps but not message.timestamp.type, so its
destination does not stamp records again. A violation looks like a mirrored record with another
timestamp than at the same place of the source.
"""

from __future__ import annotations

from linkflap.chaos.scenarios.base import ScenarioRequest, one_failover
from linkflap.harness.model.scenario import Scenario, TopicSpec


def build(request: ScenarioRequest) -> Scenario:
    """A->B: a topic stamped by its brokers; a drained failover to B."""
    return one_failover(
        request,
        name="log-append-time",
        about=(
            "a topic whose records are stamped by the brokers that append them; the mirror is "
            "drained, clients continue on {destination}"
        ),
        between=(3.0, 4.0),
        kind="failover-planned",
        when="seen-on-both-sides",
        topics=TopicSpec(config={"message.timestamp.type": "LogAppendTime"}),
        duration=7.0,
    )
