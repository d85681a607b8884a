"""Captures of a run's clusters that linkflap did not start: what `harness.capture.logs` copies from
brokers' folders is fetched here from partitions' leaders.

A capture has the data topics alone, and of each partition what its leader gives to a consumer: all
that was below the high watermark when the capture began. So there is one replica of each, and
nothing of Kafka's own topics, which hold what other users of these clusters do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from linkflap.harness.capture.live.cluster import GivenUp, LiveCluster
from linkflap.harness.capture.live.record import Copied, Pace, copy
from linkflap.harness.capture.logs import Captures
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.protocols import Cluster, is_running
from linkflap.harness.model.topology import is_data_topic
from linkflap.harness.wire.access import AuthenticationRefused, access_to

_RATE: Final = 20e6
"""Bytes a second that are fetched at most: others use these clusters too."""


class FetchedCaptures(Captures):
    """Captures clusters into moments, by Fetch. One that the run has lost is captured once: its
    brokers run on behind the paths that were cut, and what happens there later is not the run's."""

    def current(self, cluster: str) -> bool:
        return cluster in self._captured

    def _take(self, moment: str, subject: Cluster) -> Sequence[Bounds]:
        alive = is_running(subject)
        cluster = LiveCluster(
            subject.name, subject.bootstrap.split(","), access_to(subject.bootstrap)
        )
        try:
            bounds = [replace(each, alive=alive) for each in self._fetched(moment, cluster)]
        except (GivenUp, AuthenticationRefused) as error:
            raise EnvironmentFailure(
                f"the logs of cluster {subject.name} could not be fetched: {error}"
            ) from error
        finally:
            cluster.close()
        taken = self._taken.setdefault(moment, {})
        taken[subject.name] = bounds
        if not alive:
            self._captured[subject.name] = None
        self._writer.write_bounds(moment, [row for rows in taken.values() for row in rows])
        return bounds

    def _fetched(self, moment: str, cluster: LiveCluster) -> Sequence[Bounds]:
        partitions = sorted(tp for tp in cluster.enter() if is_data_topic(tp[0], self._homes))
        starts, ends = cluster.bounds(partitions, "start"), cluster.bounds(partitions, "high")
        root, pace = self._writer.capture_folder(moment) / cluster.name, Pace(_RATE)
        found: list[Bounds] = []
        for topic, number in partitions:
            leader = max(cluster.leader((topic, number)), 0)
            copied = Copied(
                cluster=cluster.name,
                tp=(topic, number),
                broker=leader,
                start=starts[topic, number],
                end=max(starts[topic, number], ends[topic, number]),
                folder=root / str(leader) / f"{topic}-{number}",
            )
            copy(cluster, copied, pace, lambda _size, _offsets: None)
            if not copied.complete:
                raise GivenUp(f"{topic}-{number}: {copied.reason}")
            copied.begin()
            found.append(_bounds_of(copied))
        return found


def _bounds_of(copied: Copied) -> Bounds:
    topic, number = copied.tp
    return Bounds(
        cluster=copied.cluster,
        broker=copied.broker,
        topic=topic,
        partition=number,
        leader=True,
        alive=True,
        log_start=copied.start,
        high_watermark=copied.end,
        high_watermark_from="sampled",
    )
