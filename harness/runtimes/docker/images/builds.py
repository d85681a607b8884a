"""Images in general: built from the recipes in docker/, pulled from a registry, and checked: their
architecture is the engine's, and their Java runs.

All content is fetched on this machine beforehand; a build fetches and runs nothing. Whether a
registry is reachable is tested once, quickly; an unreachable one is no error by itself.
"""

from __future__ import annotations

import functools
import io
import re
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import docker
from docker.errors import BuildError, DockerException, ImageNotFound
from requests.exceptions import RequestException
from testcontainers.core.docker_client import get_docker_host

from linkflap.harness.machine import cache
from linkflap.harness.machine.docker_package import reason
from linkflap.harness.model.errors import SetupError
from linkflap.harness.runtimes.docker import engine

_SAME: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def same_architecture(one: str, other: str) -> bool:
    """Whether two names mean the same architecture. An architecture that was not recorded matches
    any."""
    return not (one and other) or _SAME.get(one, one) == _SAME.get(other, other)


def check_architecture(image: str) -> None:
    """Raises SetupError for an image in the engine that has another architecture."""
    with engine.asked(f"look at image {image}", kind=SetupError):
        theirs = str(engine.client().images.get(image).attrs.get("Architecture", ""))
        ours = str(engine.client().info().get("Architecture", ""))
    if not same_architecture(theirs, ours):
        raise SetupError(
            f"image {image} is for {theirs} and the Docker engine is {ours}; name one that is for "
            f"{ours}"
        )


_IN_PACKAGE: Final = Path(__file__).parents[1] / "recipes"
_IN_CHECKOUT: Final = Path(__file__).resolve().parents[4] / "docker"
# Modification time of every file in an image: a class archive checks its jars' times.
_TIME: Final = 1_700_000_000

Content = Sequence[tuple[Path, str, int]]
"""Files of this machine, each with its path in the build context and its mode."""


@functools.cache
def recipe(name: str) -> str:
    """The Dockerfile of that name. Raises SetupError when the installation of linkflap is
    incomplete."""
    for folder in (_IN_PACKAGE, _IN_CHECKOUT):
        path = folder / name / "Dockerfile"
        if path.is_file():
            return path.read_text()
    raise SetupError(f"there is no {_IN_PACKAGE / name / 'Dockerfile'}; install linkflap again")


def identity(name: str) -> str | None:
    """The id of an image that the engine has. Raises SetupError when it does not answer."""
    with engine.asked(f"look for image {name}", kind=SetupError):
        try:
            return str(engine.client().images.get(name).id)
        except ImageNotFound:
            return None


def build(
    tag: str,
    name: str,
    content: Content,
    *,
    arguments: Mapping[str, str],
    labels: Mapping[str, str],
) -> None:
    """Builds the image `tag` from the recipe `name`. Raises SetupError with the engine's reason."""
    with tempfile.TemporaryFile(dir=cache.folder()) as context:
        _pack(context, recipe(name), content)
        context.seek(0)
        with engine.asked(f"build {tag}", kind=SetupError):
            try:
                engine.client().images.build(
                    fileobj=context,
                    custom_context=True,
                    tag=tag,
                    rm=True,
                    forcerm=True,
                    buildargs=dict(arguments),
                    labels=dict(labels),
                )
            except BuildError as error:
                raise SetupError(f"the image {tag} could not be built: {reason(error)}") from error


def _pack(context: IO[bytes], dockerfile: str, content: Content) -> None:
    """The build context as a tar: the same bytes on every machine."""
    with tarfile.open(fileobj=context, mode="w") as tar:
        _add(tar, "Dockerfile", 0o644, dockerfile.encode())
        for path, inside, mode in content:
            _add(tar, inside, mode, path.read_bytes())


def _add(tar: tarfile.TarFile, name: str, mode: int, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), mode, _TIME
    tar.addfile(entry, io.BytesIO(content))


_REGISTRY_WITHIN = 20
_unreachable: set[str] = set()


def fetched(name: str) -> bool:
    """Whether the engine has the image, or could pull it now. Raises SetupError when the engine
    does not answer."""
    if identity(name):
        return True
    host = name.partition("/")[0]
    if host in _unreachable or not _offered(name):
        _unreachable.add(host)
        return False
    cache.LOG.info("first use: pulling %s", name)
    pull(name, fix="pull it by hand (docker pull), or see that its registry can be reached")
    return True


def pull(name: str, *, fix: str) -> None:
    """Raises SetupError with the reason and how to fix it."""
    cache.check_online(f"the image {name}")
    with engine.asked(f"pull {name}", kind=SetupError, fix=fix):
        engine.client().images.pull(name)


def _offered(name: str) -> bool:
    """Whether the registry has it, with a short timeout: a network that drops packets must not cost
    minutes."""
    engine.client()
    quick = (
        docker.DockerClient(base_url=get_docker_host(), timeout=_REGISTRY_WITHIN)
        if get_docker_host()
        else None
    )
    client = quick or docker.from_env(timeout=_REGISTRY_WITHIN)
    try:
        client.api.inspect_distribution(name)
    except (DockerException, RequestException, OSError):
        return False
    finally:
        client.close()
    return True


_JAVA_WITHIN: Final = 60
_LEAST_JAVA: Final = 17
_MOST: Final = 200


def java_in(name: str, *, fix: str) -> int:
    """The feature release of the Java on an image's PATH. Raises SetupError."""
    with (
        engine.claimed("base") as labels,
        engine.asked(f"run java in {name}", kind=SetupError, fix=fix),
    ):
        container = engine.client().containers.create(
            name, ["-version"], entrypoint=["java"], network_mode="none", labels=labels
        )
        try:
            container.start()
            status = int(container.wait(timeout=_JAVA_WITHIN)["StatusCode"])
            output = container.logs().decode(errors="replace").strip()
        finally:
            container.remove(force=True, v=True)
    release = re.search(r'version "(\d+)', output)
    if status or release is None:
        last = output.splitlines()[-1][:_MOST] if output else "nothing"
        raise SetupError(
            f"the Java of image {name} does not run: `java -version` printed {last!r} and ended "
            f"with {status}; {fix}"
        )
    if int(release[1]) < _LEAST_JAVA:
        raise SetupError(
            f"the Java of image {name} is {release[1]}, and {_LEAST_JAVA} or later is needed; {fix}"
        )
    return int(release[1])
