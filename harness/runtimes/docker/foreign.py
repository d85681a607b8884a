"""An image of somebody else's as a cluster's Kafka: apache/kafka, or a KIP author's own.

It is taken as it is; its jars are copied out once, because a log directory is formatted and class paths are written on this
machine. Its own entry point never runs: brokers are started by their main class, as everywhere.
"""

from __future__ import annotations

import re
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docker.errors import NotFound

from harness.model.errors import InputError, SetupError
from harness.runtimes.distribution import cache
from harness.runtimes.distribution.kafka import Kafka, look_for
from harness.runtimes.docker import builds, engine, registry
from harness.runtimes.docker.java_inside import java_in

OFFICIAL: Final = "apache/kafka"
_PLACES: Final = ("/opt/kafka/libs", "/usr/share/java/kafka")
_PLACE, _JAVA = "place", "java"
_SAME: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """`kafka` is the copy on this machine, `libs` where the jars are inside; `id` the engine's, `java` a feature release."""

    kafka: Kafka
    id: str
    libs: Path
    java: int


def is_reference(asked: str) -> bool:
    """Whether a `ClusterSpec.kafka` names an image: neither a version nor a folder, but a name with a slash or a tag."""
    path = Path(asked).expanduser()
    named = re.fullmatch(r"[a-z0-9][\w.-]*(:\d+)?(/[\w.-]+)*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?", asked)
    return bool(named) and ("/" in asked or ":" in asked) and not path.is_dir()


def take(reference: str) -> Foreign:
    """The image, pulled if the engine has not got it. Raises SetupError; InputError for one without a Kafka."""
    identity = builds.identity(reference)
    if identity is None:
        mend = f"build or load an image {reference}, see that its registry can be reached, or name a version, a folder or another"
        registry.pull(reference, mend=mend)
        identity = builds.identity(reference) or reference
    _check_architecture(reference)
    id = identity.removeprefix("sha256:")
    doing = f"copying the jars out of image {reference}"
    folder = cache.once(f"images/{id[:24]}", lambda target: _copy(reference, target), doing=doing)
    found = look_for(str(folder))
    assert found is not None
    return Foreign(kafka=found, id=id, libs=Path((folder / _PLACE).read_text()), java=int((folder / _JAVA).read_text()))


def _check_architecture(reference: str) -> None:
    with engine.asked(f"look at image {reference}", kind=SetupError):
        theirs = str(engine.client().images.get(reference).attrs.get("Architecture", ""))
        ours = str(engine.client().info().get("Architecture", ""))
    if _SAME.get(theirs, theirs) != _SAME.get(ours, ours):
        raise SetupError(f"image {reference} is for {theirs} and the Docker engine is {ours}; name one that is for {ours}")


def _copy(reference: str, target: Path) -> None:
    java = java_in(reference, mend="name another image, or the version")
    with engine.claimed("jars") as labels, engine.asked(f"copy the jars out of {reference}", kind=SetupError):
        container = engine.client().containers.create(
            reference, ["none"], entrypoint=["none"], network_mode="none", labels=labels
        )
        try:
            place = next((place for place in _PLACES if _copied(container, place, target)), None)
        finally:
            container.remove(force=True, v=True)
    if place is None:
        raise InputError(f"image {reference} has no Kafka in {' or '.join(_PLACES)}; name another, or a folder of jars")
    (target / _PLACE).write_text(place)
    (target / _JAVA).write_text(str(java))


def _copied(container: object, place: str, target: Path) -> bool:
    """Whether there were jars; they are in `target` then."""
    try:
        stream, _ = container.get_archive(place)  # type: ignore[attr-defined]
    except NotFound:
        return False
    with tempfile.TemporaryFile(dir=target) as archive:
        for part in stream:
            archive.write(part)
        archive.seek(0)
        with tarfile.open(fileobj=archive) as tar:
            for entry in tar:
                content = tar.extractfile(entry) if entry.isfile() and entry.name.endswith(".jar") else None
                if content is not None:
                    (target / Path(entry.name).name).write_bytes(content.read())
    return any(target.glob("*.jar"))
