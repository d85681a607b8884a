"""Copies the raw logs of a cluster from its brokers' log directories, whether it is alive or dead.

A capture promises that every record below a replica's captured high watermark is in its copy. On a
live cluster the high watermark is read first and the bytes are copied afterwards, so the copy is
never shorter. It may be longer, and its tail may be torn in mid-batch. Brokers and harness share
the page cache, so the copy has all that a killed broker had written.

A capture has the data topics (those at home on a cluster of the topology) and the internal topics
by which producers, transactions and groups are judged. Of every partition folder it has only the
segments.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from linkflap.harness.capture.replicas import Known, PartitionFolder, ask, bounds_of
from linkflap.harness.log.layout import LONG, walk
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.events import Captured
from linkflap.harness.model.history import Bounds, Watermark
from linkflap.harness.model.protocols import Cluster, Deployment
from linkflap.harness.model.topology import INTERNAL_TOPICS, is_data_topic
from linkflap.harness.rundir import RunWriter
from linkflap.harness.rundir.files import is_full

Since = Mapping[tuple[str, str, int], int]
"""(cluster, topic, partition) -> first captured offset. A partition without an entry is captured
completely."""


def drop_before(folder: Path, offset: int) -> None:
    """Takes the batches that end below `offset` from the beginning of the copy of a log.

    What follows stays as it is, byte for byte, in a segment that is named for its first offset, as
    Kafka names them.
    """
    for path in sorted(folder.glob("*.log")):
        content = path.read_bytes()
        position = _first_after(content, offset)
        if position == 0:
            return
        path.unlink()
        if position < len(content):
            (base,) = LONG.unpack_from(content, position)
            (folder / f"{base:020d}.log").write_bytes(content[position:])
            return
    (folder / f"{offset:020d}.log").touch()


def _first_after(content: bytes, offset: int) -> int:
    """The position of the first batch that reaches `offset`; the end if none does. A torn batch
    counts as reaching every offset."""
    position = 0
    with contextlib.suppress(ValueError):
        for batch in walk(content):
            if batch.last >= offset:
                break
            position = batch.stop
    return position


_ATTEMPTS: Final = 10

LastKnown = Callable[[str], Mapping[tuple[str, int], Watermark]]
"""Per cluster name, the last watermark that was sampled of each partition."""


def nothing_known(_cluster: str) -> Mapping[tuple[str, int], Watermark]:
    """The last watermarks of a cluster that was never sampled: none."""
    return {}


class Captures:
    """Captures clusters into moments. Bounds of one moment accumulate over clusters; the same
    cluster again replaces its own.

    Safe from several threads.
    """

    def __init__(
        self,
        deployment: Deployment,
        writer: RunWriter,
        last_known: LastKnown = nothing_known,
        *,
        since: Since | None = None,
    ) -> None:
        self._deployment, self._writer, self._last_known = deployment, writer, last_known
        self._since = since or {}
        topology = deployment.topology
        self._homes = topology.named(*(cluster.name for cluster in topology.clusters))
        self._taken: dict[str, dict[str, Sequence[Bounds]]] = {}
        self._captured: dict[str, frozenset[tuple[Path, int, int]] | None] = {}
        self._lock = threading.Lock()

    def take(self, moment: str, cluster: str) -> Sequence[Bounds]:
        """Copies the present logs of `cluster`, and writes the bounds of the moment so far.

        Raises EnvironmentFailure when a partition's files keep changing under the copy, or when
        there is no room for it.
        """
        with self._lock:
            try:
                bounds = self._take(moment, self._deployment.clusters[cluster])
            except OSError as error:
                if is_full(error):
                    raise self._writer.breakage.because(error) from error
                raise
        self._writer.write(Captured(cluster=cluster, moment=moment, replicas=len(bounds)))
        return bounds

    def current(self, cluster: str) -> bool:
        """Whether the broker was captured, and its logs on disk are as they were then."""
        captured = self._captured.get(cluster)
        return captured is not None and captured == self._files(self._deployment.clusters[cluster])

    def _files(self, subject: Cluster) -> frozenset[tuple[Path, int, int]]:
        """Every segment with its size and its time of modification."""
        found = (
            file for replica in self._on_disk(subject) for file in replica.folder.glob("*.log")
        )
        return frozenset((file, (stat := file.stat()).st_size, stat.st_mtime_ns) for file in found)

    def _take(self, moment: str, subject: Cluster) -> Sequence[Bounds]:
        replicas = sorted(self._on_disk(subject), key=lambda r: (*r.tp, r.broker.id))
        known = ask(subject, replicas, self._last_known(subject.name))
        dead = all(broker.state == "stopped" for broker in subject.brokers.values())
        # files of a running broker may go while they are listed
        files = self._files(subject) if dead else None
        bounds = [
            *(self._copy(moment, replica, known) for replica in replicas),
            *self._elsewhere(moment, subject),
        ]
        taken = self._taken.setdefault(moment, {})
        taken[subject.name] = bounds
        self._captured[subject.name] = files
        self._writer.write_bounds(moment, [row for rows in taken.values() for row in rows])
        return bounds

    def _on_disk(self, subject: Cluster) -> Iterator[PartitionFolder]:
        """The replicas that are copied from disk."""
        return replicas_of(subject, self._homes)

    def _elsewhere(self, moment: str, subject: Cluster) -> Sequence[Bounds]:
        """Captures replicas that are not copied from disk."""
        del moment, subject
        return ()

    def _copy(self, moment: str, replica: PartitionFolder, known: Known) -> Bounds:
        name = f"{replica.topic}-{replica.partition}"
        folder = (
            self._writer.capture_folder(moment)
            / replica.broker.cluster
            / str(replica.broker.id)
            / name
        )
        copy_segments(replica.folder, folder)
        begin = self._since.get((replica.broker.cluster, *replica.tp))
        if begin is not None:
            drop_before(folder, begin)
        return replace(bounds_of(replica, folder, known), since=begin or 0)


def replicas_of(cluster: Cluster, homes: tuple[str, ...]) -> Iterator[PartitionFolder]:
    """Partition folders of a cluster's brokers: of Kafka's own topics that are captured, and of
    data topics of these homes."""
    for broker in cluster.brokers.values():
        for folder in broker.log_dir.iterdir():
            topic, _, number = folder.name.rpartition("-")
            # Folders that a broker is about to delete, or holds for a future move, end in -delete,
            # -future or -stray.
            if (
                folder.is_dir()
                and number.isdigit()
                and (topic in INTERNAL_TOPICS or is_data_topic(topic, homes))
            ):
                yield PartitionFolder(
                    broker=broker, topic=topic, partition=int(number), folder=folder
                )


def copy_segments(source: Path, destination: Path) -> None:
    """Copies the segments of a partition folder, as a set that existed together.

    A live broker may delete a segment (retention) or swap one in (compaction) between the listing
    and the copy: the copy would mix old and new, so it begins again. Appends do not disturb it.
    """
    for _ in range(_ATTEMPTS):
        shutil.rmtree(destination, ignore_errors=True)
        destination.mkdir(parents=True)
        try:
            before = _inodes(source)
            for name in before:
                shutil.copyfile(source / name, destination / name)
            after = _inodes(source)
        except FileNotFoundError:
            continue
        if before.items() <= after.items():
            return
    raise EnvironmentFailure(
        f"{source} changed {_ATTEMPTS} times while it was copied; capture it when it is written to "
        "less"
    )


def _inodes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in sorted(folder.glob("*.log"))}
