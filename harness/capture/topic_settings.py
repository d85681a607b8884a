"""Samples the settings that are set on data topics, on every cluster of a run: a failover has to
give them back to topics whose mirror had changed them.

One thread asks each cluster once a second, and a topic is recorded when its settings are not those
recorded last, and at the end. A cluster that does not answer gives no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.harness.model.background import Background
from linkflap.harness.model.clock import now
from linkflap.harness.model.events import SettingsSampled
from linkflap.harness.model.protocols import Recorder
from linkflap.harness.wire.offsets import quiet, settings_on_topics

INTERVAL: Final = 1.0
ANSWER_WITHIN: Final = 2.0


class SettingsSampler(Background):
    """Samples the topics of several clusters (`bootstraps`: cluster -> addresses), until
    stopped."""

    def __init__(
        self, bootstraps: Mapping[str, str], topics: Mapping[str, int], recorder: Recorder
    ) -> None:
        super().__init__("the sampler of topics' settings", self._watch)
        self._bootstraps, self._topics, self._recorder = bootstraps, topics, recorder
        self._last: dict[tuple[str, str], Mapping[str, str]] = {}
        self._answered = dict.fromkeys(bootstraps, 0)
        self._admins: dict[str, AdminClient] = {}

    def _watch(self) -> None:
        while True:
            last = self.stopping.wait(INTERVAL)
            for name in self._bootstraps:
                if not self._ask(name, last=last) and last:
                    self._ask(name, last=last)
            if last:
                return

    def _ask(self, cluster: str, *, last: bool) -> bool:
        """Whether the cluster answered. If not, the next request has another client: one asks the
        broker that it once took for the controller, for minutes after that broker has left (as a
        shadow does at its failover)."""
        admin = self._admins.pop(cluster, None) or AdminClient(quiet(self._bootstraps[cluster]))
        answered = self._sample(cluster, admin, last=last)
        if answered:
            self._admins[cluster] = admin
        return answered

    def _sample(self, cluster: str, admin: AdminClient, *, last: bool) -> bool:
        """Whether the cluster answered."""
        asked = now()
        try:
            found = settings_on_topics(admin, self._topics, within=ANSWER_WITHIN, all_answer=False)
        except KafkaException:
            return False
        news = {
            name: own
            for name, own in found.items()
            if last or self._last.get((cluster, name)) != own
        }
        if news:
            self._last |= {(cluster, name): own for name, own in news.items()}
            before = self._answered[cluster]
            row = SettingsSampled(cluster=cluster, asked=asked, before=before, topics=news)
            self._recorder.write(row)
        if found:
            self._answered[cluster] = asked
        return bool(found)
