"""KIP-320: a fetch with an older leader epoch is refused, so that a consumer notices that the log
may have been truncated."""

from __future__ import annotations

from datetime import timedelta

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import THREE
from linkflap.chaos.cases.tools import wire
from linkflap.harness.model.wait import until
from linkflap.harness.wire import messages


@case("KIP-320-stale-epoch", THREE, claim={"with_epoch": True}, control={"with_epoch": False})
def leader_epochs(bench: Bench, *, with_epoch: bool) -> Observation:
    """KIP-320: a fetch with an older leader epoch is refused, so that a consumer notices that the
    log may have been truncated."""
    home, other = bench.broker(1), bench.broker(2)
    topic = bench.topic(replicas=[home.id])
    bench.write(topic, [b"record"] * 3)
    watcher = bench.ask(other)
    before = watcher.leadership(topic)[0].epoch
    home.kill()
    until(
        lambda: wire.leader(other.client_address, topic) == -1,
        within=WITHIN,
        what=f"{topic} to have no leader",
    )
    home.start()
    bench.led(topic, by=home)
    asked = bench.ask(home)
    m = messages.request("fetch", 12)
    row = m.FetchPartition(
        partition=0,
        current_leader_epoch=before if with_epoch else -1,
        fetch_offset=0,
        partition_max_bytes=1 << 20,
    )
    body = m.FetchRequest(
        max_wait=timedelta(milliseconds=100),
        min_bytes=1,
        topics=(m.FetchTopic(topic=topic, partitions=(row,)),),
        forgotten_topics_data=(),
    )

    def answered() -> str | None:
        error = str(asked.call("fetch", 12, body).responses[0].partitions[0].error_code.name)
        return None if error == "not_leader_or_follower" else error

    error = until(answered, within=WITHIN, what="an answer")
    return Observation(
        shown=error == "none",
        facts={"epoch_of_the_fetch": before if with_epoch else -1, "fetch": error},
    )
