"""Builds images from the recipes in docker/. All content is fetched on this machine beforehand; a
build fetches and runs nothing."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Final

from docker.errors import BuildError, ImageNotFound

from linkflap.harness.machine import cache as kept
from linkflap.harness.machine.engine_address import reason
from linkflap.harness.model.errors import SetupError
from linkflap.harness.runtimes.docker import engine

_IN_PACKAGE: Final = Path(__file__).parents[1] / "recipes"
_IN_CHECKOUT: Final = Path(__file__).resolve().parents[4] / "docker"
# Modification time of every file in an image: a class archive checks its jars' times.
_TIME: Final = 1_700_000_000

Content = Sequence[tuple[Path, str, int]]
"""Files of this machine, each with its path in the build context and its mode."""


@cache
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
    with tempfile.TemporaryFile(dir=kept.folder()) as context:
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
