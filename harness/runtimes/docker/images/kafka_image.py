"""The image of one Kafka, built here: its jars, fetched on this machine, on a base with a Java.

Its tag is derived from its content, so that a stale image is never used.
"""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from docker.errors import ImageNotFound
from filelock import FileLock

from linkflap.harness.machine import cache
from linkflap.harness.machine.java import java_for
from linkflap.harness.model.errors import SetupError
from linkflap.harness.runtimes.distribution.kafka import Kafka, cached, look_for
from linkflap.harness.runtimes.distribution.kafka import kafka as fetched
from linkflap.harness.runtimes.docker import engine
from linkflap.harness.runtimes.docker.images import builds, custom_image
from linkflap.harness.runtimes.docker.images.builds import java_in

BASE_VARIABLE: Final = "LINKFLAP_BASE"
LIBS: Final = Path("/opt/kafka/libs")
_REPOSITORY: Final = "linkflap-kafka"
_JAVA: Final = "linkflap.java"
_OTHER_BASE: Final = f"name another with --base or ${BASE_VARIABLE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image in the engine. `id` is the engine's, `java` the feature release of its Java."""

    tag: str
    id: str
    java: int


def tag(kafka: Kafka, base_image: str) -> str:
    """The name of the image of this Kafka on this base."""
    recipe = "\n".join(
        (builds.recipe("kafka"), base_image, kafka.key, *(jar.name for jar in kafka.jars))
    )
    return f"{_REPOSITORY}:{kafka.key}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def found(kafka: Kafka, base_image: str | None = None) -> Image | None:
    """The image, if it was built. Raises SetupError when the engine does not answer. `base_image`
    is by default that of $LINKFLAP_BASE, else the one made from this machine's Java."""
    name = tag(
        kafka,
        base_image
        or os.environ.get(BASE_VARIABLE)
        or builds.java_base_name(java_for(kafka.version)),
    )
    with engine.asked(f"look for image {name}", kind=SetupError):
        try:
            image = engine.client().images.get(name)
        except ImageNotFound:
            return None
    return Image(tag=name, id=str(image.id).removeprefix("sha256:"), java=int(image.labels[_JAVA]))


def there(asked: str) -> str | None:
    """The name of an image for a `ClusterSpec.kafka` that the engine has; pulls nothing. Raises
    InputError and SetupError."""
    if custom_image.is_reference(asked):
        return asked if builds.identity(asked) else None
    made = built(asked)
    if made is not None:
        return made.tag
    official = f"{custom_image.OFFICIAL}:{asked}"
    return official if look_for(asked) is None and builds.identity(official) else None


def built(asked: str, base_image: str | None = None) -> Image | None:
    """The image of a version or a folder of jars, if it was built here. Raises InputError and
    SetupError."""
    local = look_for(asked)
    engine.client()
    if local is None and cached(asked) is None:
        return None
    return found(local or fetched(asked), base_image)


def official(asked: str) -> str | None:
    """The released image of a version, if none was built here and it is in the engine or in a
    reachable registry."""
    if look_for(asked) is not None or os.environ.get(BASE_VARIABLE) or built(asked) is not None:
        return None
    name = f"{custom_image.OFFICIAL}:{asked}"
    return name if builds.fetched(name) else None


def ready(kafka: Kafka, base_image: str | None = None) -> Image:
    """The image, built if necessary; other processes that need it wait. Raises SetupError."""
    with FileLock(cache.folder() / ".docker-image.lock"):
        return found(kafka, base_image) or _build(kafka, base_image)


def _build(kafka: Kafka, base_image: str | None) -> Image:
    cache.LOG.info("first use: building the image of Kafka %s", kafka.version)
    base_image = _base(kafka, base_image)
    java = java_in(base_image, fix=_OTHER_BASE)
    name = tag(kafka, base_image)
    content = [(jar, f"libs/{jar.name}", 0o644) for jar in kafka.jars]
    builds.build(name, "kafka", content, arguments={"BASE": base_image}, labels={_JAVA: str(java)})
    made = found(kafka, base_image)
    if made is None:
        raise SetupError(
            f"image {name} was built and is gone; does something remove images on this machine?"
        )
    return made


def _base(kafka: Kafka, asked: str | None) -> str:
    """The name of a base image in the engine. Raises SetupError."""
    own = builds.java_base_name(java_for(kafka.version))
    asked = asked or os.environ.get(BASE_VARIABLE)
    name = asked or own
    there = builds.identity(name) is not None
    if asked and asked != own and not there:
        fix = (
            f"omit --base (${BASE_VARIABLE}) to make one from this machine's Java, or see that its "
            "registry can be reached"
        )
        with engine.asked(f"pull the base image {asked}", kind=SetupError, fix=fix):
            engine.client().images.pull(asked)
    if there or (asked and asked != own):
        builds.check_architecture(name)
        return name
    _check_architecture(engine.client().info())
    return builds.make_java_base(java_for(kafka.version))


def _check_architecture(about: dict[str, Any]) -> None:
    theirs, ours = str(about.get("Architecture", "")), platform.machine()
    if not builds.same_architecture(theirs, ours):
        raise SetupError(
            f"the Docker engine is {theirs} and this machine {ours}, so that a base from this "
            "machine's Java cannot run there; name one that can: linkflap images build --base "
            "IMAGE"
        )
