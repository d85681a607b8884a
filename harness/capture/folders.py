"""Makes a run directory of logs that linkflap did not record: Kafka log directories, or copied
partition folders, one per cluster.

The run directory has bounds, links to the folders (nothing is copied or written there), and the
promotions that the user named or that the bytes show (`harness.capture.promotions_from_bytes`). It
has no client history, and `Run.recorded` is false.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, count, takewhile
from pathlib import Path
from typing import Final, Literal

import numpy as np

from linkflap.harness.capture.logs_request import (
    Folder,
    LogsRequest,
    check_ids,
    check_mirror_named,
    check_promotions,
    check_promotions_within,
    chosen,
    homes_of,
    log_lacking_topics,
    names_of,
    selected,
    topology_of,
)
from linkflap.harness.capture.promotions_from_bytes import partners, promotions_in
from linkflap.harness.capture.replicas import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    checkpoints_in,
    cleaned_to,
    first_segment,
    log_end,
    unreadable,
)
from linkflap.harness.log import batches, records
from linkflap.harness.log.batch_headers import Bools, Headers
from linkflap.harness.log.segments import offset_in
from linkflap.harness.machine import untrusted_files
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import Captured
from linkflap.harness.model.history import Bounds
from linkflap.harness.model.scenario import Scenario, WorkloadSpec
from linkflap.harness.model.topology import TopicPartition, Topology
from linkflap.harness.rundir import Run, RunWriter

MOMENT: Final = "1-copied"
_COMPARED: Final = 2000
"""Numbers of records, and of batches per log, that suffice to decide whether offsets are kept."""
_LEAST: Final = 3
"""Records of a source that show how a mirror keeps them: a destination may have many of its own."""
_FEW: Final = 0.1
_LEFT: Final = ("producer_id", "producer_epoch", "base_sequence")
_READERS: Final = 4
"""Replicas that are read at the same time."""
RUNTIME: Final = "files"
_PARTITION: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>\d{1,9})")
_ENTRY: Final = re.compile(
    r"\s*((?:node|broker|(cluster))\.id)(?:\s*[=:]\s*|\s+)((?(2)\S+|\d{1,9}))\s*"
)
"""A line of meta.properties, as Java reads it."""
_NUMBER: Final = re.compile(r"(?<![0-9])([0-9]{1,9})$")
_LARGEST_PROPERTIES: Final = 1 << 20
_MOST_FOLDERS: Final = 1 << 18
_DEPTH: Final = 5
"""The depth below the given folder at which log directories are searched."""


def _folders_in(cluster: str, root: Path) -> Mapping[Path, list[tuple[Path, str, int]]]:
    """`root` and those folders below it that may be a broker's log directory, each with its
    partition folders. InputError without a `root`."""
    if not root.is_dir():
        raise InputError(
            f"there is no folder {root}, so the logs of {cluster} cannot be read; check its path"
        )
    tree = _Tree(root)
    found: dict[Path, list[tuple[Path, str, int]]] = {}
    seen: set[tuple[int, int]] = set()

    def enter(path: Path, depth: int) -> None:
        if (same := _identity(path)) in seen:  # a link to a folder already seen, or a loop of links
            return
        seen.add(same)
        found[path] = tree.partitions(path)
        for inner in tree.brokers(path) if depth else ():
            enter(inner, depth - 1)

    enter(root, _DEPTH)
    return found


def folders(cluster: str, root: Path) -> list[Folder]:
    """The partitions of one cluster's logs: those in `root`, or in folders below it, at least one
    per broker (`kafka-1/data`).

    A folder is a partition if its name fits and a segment is in it, in a folder beside it, or in
    another folder of its topic. Kafka's own topics (`__consumer_offsets`) are included. Raises
    InputError when no partition is found, and when two folders cannot belong to one cluster's
    brokers.
    """
    found_in = _folders_in(cluster, root)
    sure = {path: [each for each in own if _written(each[0])] for path, own in found_in.items()}
    topics = {topic for own in sure.values() for _, topic, _ in own}
    if not topics:
        raise InputError(
            f"{root} has no partition folder (such as orders-0) with a segment (such as "
            f"00000000000000000000.log) of {cluster}, nor have the folders in it; give a Kafka log "
            "directory, or a folder of copied partition folders"
        )
    # A folder without a segment beside others with segments is a lost log, not an unrelated folder.
    kept = {
        path: own
        for path, every in found_in.items()
        if (own := [each for each in every if sure[path] or each[1] in topics])
    }
    brokers = _numbered(cluster, root, kept)
    return [
        Folder(
            cluster=cluster,
            broker=brokers[path],
            topic=topic,
            partition=partition,
            path=folder,
            root=path,
        )
        for path, own in kept.items()
        for folder, topic, partition in own
    ]


def _numbered(
    cluster: str, root: Path, kept: Mapping[Path, Sequence[tuple[Path, str, int]]]
) -> Mapping[Path, int]:
    """The broker of each folder: by its meta.properties; else by its name (1, kafka-1, or
    kafka-1/data); else the next number that is free.

    A broker may have several log directories without a common partition. Raises InputError for two
    folders of one node id with a common partition, for folders of two clusters, and for two folders
    that claim one broker number.
    """
    properties = {path: _properties(path) for path in kept}
    known = {path: int(own["node"]) for path, own in properties.items() if "node" in own}
    _check_one_cluster(
        cluster, {path: own["cluster"] for path, own in properties.items() if "cluster" in own}
    )
    held: dict[tuple[int, str, int], Path] = {}
    for path, broker in known.items():
        for _, topic, partition in kept[path]:
            other = held.setdefault((broker, topic, partition), path)
            if other != path:
                raise InputError(
                    f"{cluster}: {other} and {path} both have {topic}-{partition} and "
                    f"node.id={broker} in their meta.properties, and a cluster has a node id once; "
                    "give one of them"
                )
    return {**known, **_by_name(cluster, root, known, [path for path in kept if path not in known])}


def _by_name(
    cluster: str, root: Path, known: Mapping[Path, int], unknown: Sequence[Path]
) -> Mapping[Path, int]:
    """The broker of each folder without a meta.properties that names it. InputError where two have
    the same number."""
    taken = {number: path for path, number in known.items()}
    numbers: dict[Path, int] = {}
    called = {path: _called(path, root) for path in unknown}
    for path, number in called.items():
        if number is None:
            continue
        if other := taken.get(number):
            why = "its meta.properties" if other in known else "its name"
            raise InputError(
                f"{cluster}: {path} has no meta.properties with a node.id, and is taken for broker"
                f" {number} by its name, which {other} is by {why}; copy meta.properties with each"
                " log directory, or end each folder's name with the number of its broker"
            )
        numbers[path] = number
        taken[number] = path
    free = (number for number in count() if number not in taken)
    return numbers | {path: next(free) for path in unknown if called[path] is None}


def _check_one_cluster(cluster: str, ids: Mapping[Path, str]) -> None:
    first = next(iter(ids.items()), None)
    for path, name in ids.items():
        if first and name != first[1]:
            raise InputError(
                f"{cluster}: {first[0]} is of the cluster {first[1]}, and {path} of {name} "
                "(cluster.id in their meta.properties); give each as a cluster of its own"
            )


def _properties(root: Path) -> Mapping[str, str]:
    """The node id and the cluster id in a log directory's meta.properties, if present. Raises
    InputError for a file that cannot be read."""
    file = root / "meta.properties"
    try:
        raw = untrusted_files.content(file, most=_LARGEST_PROPERTIES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(
            f"{file} cannot be read ({error.strerror}), so it is unknown which broker's logs "
            "these are; copy the file again, or remove it"
        ) from error
    # Without its zero bytes, UTF-16 reads as UTF-8. The byte order mark of some editors is not
    # UTF-8.
    text = raw.replace(b"\0", b"").decode("utf-8-sig", errors="replace").lstrip("\ufffd")
    found: dict[str, str] = {}
    for line in text.splitlines():
        if (entry := _ENTRY.fullmatch(line)) is None:
            continue
        name, value = entry[2] or "node", entry[3]
        if found.setdefault(name, value) != value:
            raise InputError(
                f"{file} has {entry[1]} twice, as {found[name]} and as {value}, so it is "
                "unknown whose logs these are; copy the file again, or correct it"
            )
    return found


def _called(path: Path, root: Path) -> int | None:
    """The number at the end of the folder's name, or of a parent's name up to `root`; None without
    a number."""
    between = takewhile(lambda each: each != root, (path, *path.parents))
    for each in between if path != root else (root,):
        if called := _NUMBER.search(each.name):
            return int(called[1])
    return None


class _Tree:
    """The folders below a root. Each is listed once, because links may form a loop."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listed: dict[tuple[int, int], list[str]] = {}
        self._holding: dict[tuple[int, int], bool] = {}

    def partitions(self, root: Path) -> list[tuple[Path, str, int]]:
        """The partition folders in a folder."""
        matches = ((path, _PARTITION.fullmatch(path.name)) for path in self._folders(root))
        return [
            (path, m["topic"], int(m["partition"]))
            for path, m in matches
            if m and not self._holds_partitions(path)
        ]

    def brokers(self, root: Path) -> list[Path]:
        """The subfolders that are no partitions. A folder that is called like a partition (kafka-0)
        counts if it has partitions in it."""
        return [
            path
            for path in self._folders(root)
            if not _PARTITION.fullmatch(path.name) or self._holds_partitions(path)
        ]

    def _holds_partitions(self, path: Path, depth: int = _DEPTH) -> bool:
        """Whether the folder is no partition, and has one somewhere below (kafka-0/data). Raises
        InputError for far more than brokers have."""
        same = _identity(path)
        if same not in self._holding:
            if len(self._holding) >= _MOST_FOLDERS:
                raise InputError(
                    f"{self._root} has more than {_MOST_FOLDERS} folders; give a Kafka log "
                    "directory, or a folder of copied partition folders"
                )
            self._holding[same] = False  # remembered for the next link to this folder
            self._holding[same] = not _written(path) and any(
                _PARTITION.fullmatch(inner.name)
                or (depth and self._holds_partitions(inner, depth - 1))
                for inner in self._folders(path)
            )
        return self._holding[same]

    def _folders(self, root: Path) -> list[Path]:
        """Sorted; empty if the folder cannot be read."""
        same = _identity(root)
        if same not in self._listed:
            try:
                with os.scandir(root) as entries:
                    self._listed[same] = sorted(each.name for each in entries if _is_folder(each))
            except OSError:
                self._listed[same] = []
        return [root / name for name in self._listed[same]]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """False also for a link that leads to itself."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _identity(path: Path) -> tuple[int, int]:
    """The identity of a folder, equal for all paths that lead to it."""
    try:
        status = path.stat()
    except OSError:
        return -1, -1
    return status.st_dev, status.st_ino


def _written(path: Path) -> bool:
    """Whether a broker wrote a partition to this folder."""
    return (path / "partition.metadata").exists() or any(
        offset_in(each.name) >= 0 for each in path.glob("*.log")
    )


def bounds(found: Iterable[Folder], scanned: Mapping[Path, int] | None = None) -> list[Bounds]:
    """The bounds of each replica from its files; `scanned` has log ends that are already known. No
    replica is marked as the leader.

    The high watermark is the highest in the replicas' checkpoint files; without any, the lowest log
    end. It is above a replica's own end only if that replica's broker has recorded it.
    """
    by_partition: dict[tuple[str, TopicPartition], list[Folder]] = defaultdict(list)
    for folder in found:
        by_partition[folder.cluster, folder.tp].append(folder)
    notes = {root: checkpoints_in(root) for root in {f.root for f in chain(*by_partition.values())}}
    known = []
    for same in by_partition.values():
        ends = {f.path: log_end(f.path) if scanned is None else scanned[f.path] for f in same}
        noted = {f.path: notes[f.root][HIGH_WATERMARKS].offsets.get(f.on_disk, -1) for f in same}
        checkpointed = max(noted.values()) >= 0
        high = max(noted.values()) if checkpointed and len(same) > 1 else min(ends.values())
        for folder in same:
            of_broker, tp = notes[folder.root], folder.on_disk
            noted_above = noted[folder.path] > ends[folder.path]
            compacted = cleaned_to(of_broker, tp, folder.path)
            needed = {HIGH_WATERMARKS: True, LOG_STARTS: True, CLEANED: compacted > 0}
            known.append(
                Bounds(
                    cluster=folder.cluster, broker=folder.broker, topic=folder.topic,
                    partition=folder.partition,
                    leader=False, alive=False,
                    log_start=max(
                        first_segment(folder.path), of_broker[LOG_STARTS].offsets.get(tp, 0)
                    ),
                    high_watermark=max(min(high, ends[folder.path]), noted[folder.path]),
                    high_watermark_from=_origin(folder)
                    if noted_above or (checkpointed and len(same) > 1)
                    else "recomputed",
                    compacted=compacted,
                    unreadable=unreadable(of_broker, tp, needed=needed),
                )
            )  # fmt: skip
    return known


def _origin(folder: Folder) -> Literal["checkpoint", "copied"]:
    """The origin of a replica's high watermark. A stopped broker leaves a file that marks a clean
    shutdown, and removes it at its next start."""
    return "checkpoint" if (folder.root / ".kafka_cleanshutdown").exists() else "copied"


def record(folder: Path, asked: LogsRequest, command: str) -> None:
    """Makes the run directory. Raises InputError for folders that are no log directories, and for
    names that match nothing."""
    topology = topology_of(asked, option="--logs")
    every = [f for name, root in asked.logs.items() for f in folders(name, root)]
    _check_apart(every)
    topics: dict[str, set[str]] = {name: set() for name in asked.logs}
    for each in every:
        topics[each.cluster].add(each.topic)
    check_mirror_named(topics, asked)
    names = selected(asked.topics, names_of(topics, asked))
    found = [
        replace(f, topic=names[f.cluster, f.topic])
        for f in chosen(every, asked.topics if not names else ".*")
        if (f.cluster, f.topic) in names
    ]
    log_lacking_topics(names, asked)
    homes = homes_of({(f.cluster, f.topic) for f in found}, asked)
    check_promotions(asked, {(f.cluster, *f.tp) for f in found})
    ends: dict[Path, int] = {}
    logs = kept_offsets(longest(found, ends), asked)
    events, ended = promotions_in(
        logs, asked.links, asked.promotions, homes, kept=asked.offsets_kept
    )
    known = bounds(found, ends)
    reached = [((f.cluster, *f.tp), ends[f.path]) for f in found]
    reached += [((b.cluster, b.topic, b.partition), b.high_watermark) for b in known]
    check_promotions_within(asked, reached)
    scenario = scenario_of("copied logs", topology, homes, asked)
    run = replace(Run.begun(scenario, RUNTIME, command), recorded=False, homes=homes)
    writer = RunWriter(folder, run)
    for event in (*events, *(Captured(time=ended, cluster=n, moment=MOMENT) for n in asked.logs)):
        writer.write(event)
    _link(found, writer.capture_folder(MOMENT))
    writer.write_bounds(MOMENT, known)
    writer.close("finished")


def _link(found: Iterable[Folder], capture: Path) -> None:
    """Links the folders into a run directory's capture."""
    for each in found:
        link = capture / each.cluster / str(each.broker) / f"{each.topic}-{each.partition}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(each.path.resolve(), target_is_directory=True)


def _check_apart(found: Sequence[Folder]) -> None:
    """Raises InputError if two clusters are the same, by id or by a common folder: no cluster is a
    mirror of itself."""
    ids: dict[str, str] = {}
    for cluster, root in dict.fromkeys((f.cluster, f.root) for f in found):
        ids[cluster] = ids.get(cluster) or _properties(root).get("cluster", "")
    check_ids(ids)
    owners: dict[tuple[int, int], str] = {}
    for folder in found:
        owner = owners.setdefault(_identity(folder.path), folder.cluster)
        if owner != folder.cluster:
            raise InputError(
                f"{folder.path} is among the logs of {owner} and of {folder.cluster}; give each "
                "cluster a folder of its own (--logs)"
            )


def scenario_of(
    name: str, topology: Topology, homes: Mapping[str, str], asked: LogsRequest
) -> Scenario:
    """The scenario of logs that linkflap did not record."""
    return Scenario(
        name=name, about="Logs that linkflap did not record.", seed=0, topology=topology,
        mirror=asked.mirror, schedule=(),
        workloads=tuple(WorkloadSpec(kind="unknown",
            home=home) for home in dict.fromkeys(homes.values())),
    )  # fmt: skip


def longest(
    found: Iterable[Folder], ends: dict[Path, int]
) -> Iterator[tuple[TopicPartition, Mapping[str, batches.ReplicaLog]]]:
    """Per partition and cluster the longest log, each read once, one partition after the other;
    adds the end of every log to `ends`."""
    by_partition: dict[TopicPartition, list[Folder]] = defaultdict(list)
    for folder in found:
        by_partition[folder.tp].append(folder)
    with ThreadPoolExecutor(_READERS) as readers:
        for partition, same in sorted(by_partition.items()):
            logs: dict[str, batches.ReplicaLog] = {}
            alone = Counter(folder.cluster for folder in same)
            # The judge recomputes every CRC; here they matter only where one of several replicas is
            # chosen.
            scanned = readers.map(
                lambda f, of=alone: batches.scan(f.segments, sums=of[f.cluster] > 1), same
            )
            for folder, log in zip(same, scanned, strict=True):
                ends[folder.path] = batches.log_end(log)
                before = logs.get(folder.cluster)
                if before is None or _reach(log) > _reach(before):
                    logs[folder.cluster] = log
            yield partition, logs


def kept_offsets(
    logs: Iterable[tuple[TopicPartition, Mapping[str, batches.ReplicaLog]]], asked: LogsRequest
) -> Iterator[tuple[TopicPartition, Mapping[str, batches.ReplicaLog]]]:
    """Passes the logs through. After the last one, raises InputError if destinations have records
    of their sources, but almost none of them in the source's batch at the source's offset, unless
    the user has named the mirror. Also raises it for a mirror that moves offsets, if the
    destination stamps records with its own time."""
    compared = there = kept = 0
    stamped = ""
    for tp, of in logs:
        stamped = stamped or _stamped(tp[0], of, asked)
        for link in asked.links if not asked.mirror_named else ():
            if compared < _COMPARED and {*link.ends} <= of.keys():
                of_source, of_batch = _records_there(of[link.source], of[link.destination])
                compared, there = compared + len(of_source), there + int(of_source.sum())
                kept += int((of_source & of_batch).sum())
        yield tp, of
    if stamped:
        _check_stamped(stamped, asked, alike=kept > 0 or not compared)
    if there >= _LEAST and kept < _FEW * there:
        raise InputError(
            f"{there:,} of {compared:,} records of {asked.links[0].destination} are also of "
            f"{asked.links[0].source}, but {there - kept:,} of them in other batches or at other "
            "offsets: their mirror does not keep these; say which it is: --mirror mm2, or --mirror "
            "command --set manifest=FILE with its guarantee (--mirror exact, if it should have "
            "kept them; --producer-ids, if it changed only those)"
        )


def _check_stamped(stamped: str, asked: LogsRequest, *, alike: bool) -> None:
    if not asked.offsets_kept:
        raise InputError(
            f"{stamped}, and its records cannot be found at the source by their content, which has "
            "timestamps; leave the topic out with --topics"
        )
    if not alike:
        raise InputError(
            f"{stamped}, and no batch of it is one of the source: their mirror does not keep these;"
            " say which it is (--mirror; exact, if it should have kept them)"
        )


def _stamped(topic: str, of: Mapping[str, batches.ReplicaLog], asked: LogsRequest) -> str:
    """A destination that has the topic with LogAppendTime, in words; empty if none has. Such
    timestamps differ from the source's unless a mirror keeps batches."""
    for link in asked.links:
        if {*link.ends} <= of.keys() and of[link.destination].headers.log_append_time.any():
            return f"{link.destination}'s {topic} has message.timestamp.type=LogAppendTime"
    return ""


def _records_there(
    source: batches.ReplicaLog, destination: batches.ReplicaLog
) -> tuple[Bools, Bools]:
    """Two columns about the first records of the destination: whether the source has the record
    with the same timestamp, and whether its batch is one of the source."""
    ours, theirs = (
        records.decode(log, 0, min(len(log.headers), _COMPARED))[0] for log in (destination, source)
    )
    same = _same_batches(source.headers, destination.headers)
    written, there = (
        np.stack((each.digest, each.timestamp), axis=1).view("i8,i8").ravel()
        for each in (ours, theirs)
    )
    return np.isin(written, there), same[ours.batch]


def _same_batches(source: Headers, destination: Headers) -> Bools:
    """Per batch of the destination, whether the source has it, byte for byte, or as a cleaner of
    either side left it, which keeps its offsets and its producer."""
    if not len(source):
        return np.zeros(len(destination), np.bool_)
    partner = partners(destination, source)

    def agree(*names: str) -> Bools:
        equal = [getattr(source, n)[partner] == getattr(destination, n) for n in names]
        return np.asarray(np.logical_and.reduce(equal), np.bool_)

    cleaned = np.minimum(source.count[partner], destination.count) <= (
        destination.last_offset - destination.base_offset
    )
    whole, left = agree("base_offset", "crc"), agree("base_offset", "last_offset", *_LEFT)
    return np.asarray(whole | (cleaned & left))


def _reach(log: batches.ReplicaLog) -> tuple[int, int]:
    good = log.headers.crc_ok
    if not good.any():
        return -1, -1
    return int(log.headers.leader_epoch[good].max()), int(log.headers.last_offset[good].max())
