"""An image that the user names as a cluster's Kafka: apache/kafka, or a KIP author's own.

linkflap does not change it. It copies the jars out once, because it formats log directories and
writes class paths on this machine. The image's entry point never runs: as everywhere, brokers are
started by their main class.
"""

from __future__ import annotations

import contextlib
import re
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from docker.errors import NotFound

from linkflap.harness.machine import cache
from linkflap.harness.model.errors import InputError, LinkflapError, SetupError
from linkflap.harness.runtimes.distribution.kafka import Kafka, look_for
from linkflap.harness.runtimes.docker import engine
from linkflap.harness.runtimes.docker.images import builds
from linkflap.harness.runtimes.docker.images.builds import java_in

OFFICIAL: Final = "apache/kafka"
_LIBS: Final = ("/opt/kafka/libs", "/usr/share/java/kafka")
_LIBS_FILE, _JAVA = "place", "java"
_OTHER: Final = "name another image, or the version"


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomImage:
    """`kafka` is the copy on this machine, `libs` the path of the jars inside. `id` is the
    engine's, `java` a feature release."""

    kafka: Kafka
    id: str
    libs: Path
    java: int


def is_reference(asked: str) -> bool:
    """Whether a `ClusterSpec.kafka` names an image: neither a version nor a folder, but a name with
    a slash or a tag."""
    path = Path(asked).expanduser()
    named = re.fullmatch(
        r"[a-z0-9][\w.-]*(:\d+)?(/[\w.-]+)*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?", asked
    )
    return bool(named) and ("/" in asked or ":" in asked) and not path.is_dir()


def take(reference: str) -> CustomImage:
    """The image, pulled if the engine does not have it. Raises SetupError; InputError for one
    without a Kafka."""
    identity = builds.identity(reference)
    if identity is None:
        fix = (
            f"build or load an image {reference}, see that its registry can be reached, or name a "
            "version, a folder or another"
        )
        builds.pull(reference, fix=fix)
        identity = builds.identity(reference) or reference
    builds.check_architecture(reference)
    id = _id(identity)
    doing = f"copying the jars out of image {reference}"
    folder = cache.once(f"images/{id[:24]}", lambda target: _copy(reference, target), doing=doing)
    found = look_for(str(folder))
    assert found is not None
    return CustomImage(
        kafka=found,
        id=id,
        libs=Path((folder / _LIBS_FILE).read_text()),
        java=int((folder / _JAVA).read_text()),
    )


def look(reference: str) -> None:
    """Raises SetupError or InputError if an image in the engine cannot be a Kafka; copies
    nothing."""
    builds.check_architecture(reference)
    if cache.kept(f"images/{_id(builds.identity(reference) or '')[:24]}"):
        return  # copied, so it has both
    java_in(reference, fix=_OTHER)
    with _made(reference) as container:
        if not any(_has(container, libs) for libs in _LIBS):
            raise _no_kafka(reference)


def _id(identity: str) -> str:
    return identity.removeprefix("sha256:")


def _no_kafka(reference: str) -> InputError:
    return InputError(
        f"image {reference} has no Kafka in {' or '.join(_LIBS)}; name another, or a folder of jars"
    )


@contextlib.contextmanager
def _made(reference: str) -> Iterator[Any]:
    """A container of the image that never starts."""
    with (
        engine.claimed("jars") as labels,
        engine.asked(f"copy the jars out of {reference}", kind=SetupError),
    ):
        container = engine.client().containers.create(
            reference, ["none"], entrypoint=["none"], network_mode="none", labels=labels
        )
        try:
            yield container
        finally:
            container.remove(force=True, v=True)


def _has(container: Any, libs: str) -> bool:  # noqa: ANN401 - the docker package has no types
    """Whether there is such a folder, without reading its contents."""
    try:
        stream, _ = container.get_archive(libs)
    except NotFound:
        return False
    stream.close()
    return True


def _copy(reference: str, target: Path) -> None:
    java = java_in(reference, fix=_OTHER)
    with _made(reference) as container:
        libs = next((libs for libs in _LIBS if _copied(container, libs, target)), None)
    if libs is None:
        raise _no_kafka(reference)
    (target / _LIBS_FILE).write_text(libs)
    (target / _JAVA).write_text(str(java))


def _copied(container: Any, libs: str, target: Path) -> bool:  # noqa: ANN401 - the docker package has no types
    """Copies the jars to `target`. Returns whether there were any."""
    try:
        stream, _ = container.get_archive(libs)
    except NotFound:
        return False
    with tempfile.TemporaryFile(dir=target) as archive:
        for part in stream:
            archive.write(part)
        archive.seek(0)
        with tarfile.open(fileobj=archive) as tar:
            for entry in tar:
                content = (
                    tar.extractfile(entry)
                    if entry.isfile() and entry.name.endswith(".jar")
                    else None
                )
                if content is not None:
                    (target / Path(entry.name).name).write_bytes(content.read())
    return any(target.glob("*.jar"))


def reason_against(asked: str) -> str | None:
    """Why an image in the engine cannot run Kafka; None if it can, and for a name that is not an
    image's."""
    if not is_reference(asked):
        return None
    try:
        look(asked)
    except LinkflapError as error:
        return str(error)
    return None
