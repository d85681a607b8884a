"""The base class of all mirrors (`harness.model.protocols.Mirror`): clusters, events, reversal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Self

from confluent_kafka.admin import AdminClient

from linkflap.harness.machine import untrusted_files
from linkflap.harness.model.events import MirrorCrashed, MirrorStarted, Truncation
from linkflap.harness.model.protocols import Deployment, FailoverKind, Recorder
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import CANARY, LinkSpec, TopicPartition, topic_name
from linkflap.harness.wire.librdkafka import quiet


class MirrorBase:
    """A mirror over one link. `reverses` is the earlier mirror over the reverse link."""

    def __init__(
        self,
        spec: MirrorSpec,
        link: LinkSpec,
        deployment: Deployment,
        recorder: Recorder,
        *,
        reverses: Self | None = None,
    ) -> None:
        self.spec, self.link = spec, link
        self._deployment, self._recorder, self._reverses = deployment, recorder, reverses
        self._source = deployment.clusters[link.source]
        self._destination = deployment.clusters[link.destination]
        self._homes: tuple[str, ...] = (
            deployment.topology.named(*deployment.topology.homes_over(link))
            if reverses is None
            else reverses._homes
        )
        self._nth: int = 0 if reverses is None else reverses._nth + 1
        self._canary = topic_name(link.source, CANARY)

    @cached_property
    def _there(self) -> AdminClient:
        return AdminClient(quiet(self._source.bootstrap))

    @cached_property
    def _here(self) -> AdminClient:
        return AdminClient(quiet(self._destination.bootstrap))

    def _back(self) -> Self:
        """The mirror that reverses this one."""
        link = LinkSpec(source=self.link.destination, destination=self.link.source)
        return type(self)(self.spec, link, self._deployment, self._recorder, reverses=self)

    def stop(self) -> None:
        raise NotImplementedError

    def fail_over(self, kind: FailoverKind) -> None:
        """Does the same for both kinds: stops."""
        del kind
        self.stop()

    def _record_start(self, options: Mapping[str, object], began: float) -> None:
        self._recorder.write(
            MirrorStarted(
                link=self.link.name,
                mirror=self.spec.kind,
                options=options,
                seconds=round(time.monotonic() - began, 3),
            )
        )

    def _record_crash(self, by: str = "SIGKILL") -> None:
        self._recorder.write(MirrorCrashed(link=self.link.name, by=by))

    def _record_truncation(self, partition: TopicPartition, offset: int, end: int) -> None:
        """A log of the destination that ended at `end` was truncated to `offset`."""
        self._recorder.write(
            Truncation(
                link=self.link.name,
                cluster=self.link.destination,
                topic=partition[0],
                partition=partition[1],
                offset=offset,
                end=end,
            )
        )


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    try:
        return "\n".join(untrusted_files.last_lines(log, lines))
    except OSError as error:
        return f"(no log: {error.strerror})"
