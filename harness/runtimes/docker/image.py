"""The image of one Kafka: its jars and toxiproxy-server, fetched on this machine, on a base with a Java.

Its tag says what it was made of, so that an image made of something else is never taken for it.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import re
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from docker.errors import BuildError, ImageNotFound
from filelock import FileLock

from harness.model.errors import SetupError
from harness.runtimes.distribution import cache, toxiproxy_server
from harness.runtimes.distribution.java import java_for
from harness.runtimes.distribution.kafka import Kafka, cached, look_for
from harness.runtimes.distribution.kafka import kafka as fetched
from harness.runtimes.docker import base, engine

BASE_VARIABLE: Final = "LINKFLAP_BASE"
LIBS: Final = Path("/opt/kafka/libs")
TOXIPROXY: Final = "/usr/local/bin/toxiproxy-server"
_DOCKERFILE: Final = Path(__file__).parent / "image" / "Dockerfile"
_REPOSITORY: Final = "linkflap-kafka"
_JAVA: Final = "linkflap.java"
# Of every file in the image: a class archive remembers its jars' times.
_TIME: Final = 1_700_000_000
_OTHER_BASE: Final = f"name another with --base or ${BASE_VARIABLE}"
_JAVA_WITHIN: Final = 60
_SAME_ARCHITECTURE: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that is in the engine. `id` is the engine's, `java` the feature release of its Java."""

    tag: str
    id: str
    java: int


def tag(kafka: Kafka, base_image: str) -> str:
    """The name of the image of this Kafka on this base."""
    recipe = "\n".join((_DOCKERFILE.read_text(), base_image, toxiproxy_server.VERSION, kafka.key, *(j.name for j in kafka.jars)))
    return f"{_REPOSITORY}:{kafka.key}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def found(kafka: Kafka, base_image: str | None = None) -> Image | None:
    """The image, if it was built. Raises SetupError when the engine does not answer.

    `base_image` is by default the one of $LINKFLAP_BASE, else the one made from this machine's Java.
    """
    name = tag(kafka, base_image or os.environ.get(BASE_VARIABLE) or base.name(java_for(kafka.version)))
    with engine.asked(f"look for image {name}", kind=SetupError):
        try:
            image = engine.client().images.get(name)
        except ImageNotFound:
            return None
    return Image(tag=name, id=str(image.id).removeprefix("sha256:"), java=int(image.labels[_JAVA]))


def there(asked: str, base_image: str | None = None) -> Image | None:
    """The image of a `ClusterSpec.kafka`, if it was built; fetches nothing. Raises InputError and SetupError."""
    local = look_for(asked)
    engine.client()
    if local is None and cached(asked) is None:
        return None
    return found(local or fetched(asked), base_image)


def ready(kafka: Kafka, base_image: str | None = None) -> Image:
    """The image, built when it is not there; other processes that want it wait. Raises SetupError."""
    with FileLock(cache.folder() / ".docker-image.lock"):
        return found(kafka, base_image) or _build(kafka, base_image)


def _build(kafka: Kafka, base_image: str | None) -> Image:
    cache.LOG.info("first use: building the image of Kafka %s", kafka.version)
    client = engine.client()
    base_image = _base(kafka, base_image)
    java = _java_in(base_image)
    name = tag(kafka, base_image)
    with tempfile.TemporaryFile(dir=cache.folder()) as context:
        _pack(context, kafka)
        context.seek(0)
        with engine.asked(f"build {name}", kind=SetupError):
            try:
                client.images.build(
                    fileobj=context,
                    custom_context=True,
                    tag=name,
                    rm=True,
                    forcerm=True,
                    buildargs={"BASE": base_image},
                    labels={_JAVA: str(java)},
                )
            except BuildError as error:
                raise SetupError(f"the image of Kafka {kafka.version} could not be built: {engine.reason(error)}") from error
    built = found(kafka, base_image)
    if built is None:
        raise SetupError(f"image {name} was built and is gone; does something remove images on this machine?")
    return built


def _base(kafka: Kafka, asked: str | None) -> str:
    """The name of a base that is in the engine. Raises SetupError."""
    client = engine.client()
    own = base.name(java_for(kafka.version))
    asked = asked or os.environ.get(BASE_VARIABLE)
    name = asked or own
    with engine.asked(f"look for image {name}", kind=SetupError):
        try:
            client.images.get(name)
            return name
        except ImageNotFound:
            pass
    if asked and asked != own:
        mend = (
            f"leave --base (${BASE_VARIABLE}) away to make one from this machine's Java, or see that its registry can be reached"
        )
        with engine.asked(f"pull the base image {asked}", kind=SetupError, mend=mend):
            client.images.pull(asked)
        return asked
    _check_architecture(client.info())
    return base.make(java_for(kafka.version))


def _check_architecture(about: dict[str, Any]) -> None:
    theirs, ours = str(about.get("Architecture", "")), platform.machine()
    if _SAME_ARCHITECTURE.get(theirs, theirs) != _SAME_ARCHITECTURE.get(ours, ours):
        raise SetupError(
            f"the Docker engine is {theirs} and this machine {ours}, so that a base from this machine's Java cannot run there; "
            "name one that can: linkflap images build --base IMAGE"
        )


def _java_in(name: str) -> int:
    """The feature release of the Java on an image's PATH."""
    with engine.claimed("base") as labels, engine.asked(f"run java in {name}", kind=SetupError, mend=_OTHER_BASE):
        container = engine.client().containers.create(name, ["java", "-version"], network_mode="none", labels=labels)
        try:
            container.start()
            container.wait(timeout=_JAVA_WITHIN)
            said = container.logs()
        finally:
            container.remove(force=True, v=True)
    release = re.search(r'version "(\d+)', said.decode(errors="replace"))
    if release is None or int(release[1]) < 17:
        raise SetupError(f"the Java of image {name} is not 17 or later; {_OTHER_BASE}")
    return int(release[1])


def _pack(context: Any, kafka: Kafka) -> None:  # noqa: ANN401 - a binary file
    """The build context as a tar, the same bytes whoever fetched the files."""
    files = [(_DOCKERFILE, "Dockerfile", 0o644), *((jar, f"libs/{jar.name}", 0o644) for jar in kafka.jars)]
    files.append((toxiproxy_server.toxiproxy_server(), "toxiproxy-server", 0o755))
    with tarfile.open(fileobj=context, mode="w") as tar:
        for path, inside, mode in files:
            entry = tarfile.TarInfo(inside)
            content = path.read_bytes()
            entry.size, entry.mode, entry.mtime = len(content), mode, _TIME
            tar.addfile(entry, io.BytesIO(content))
