"""Images in general: built from the recipes in docker/, pulled from a registry, and checked: their
architecture is the engine's, and their Java runs.

All content is fetched on this machine beforehand; a build fetches and runs nothing. Whether a
registry is reachable is tested once, quickly; an unreachable one is no error by itself.

Machines that reach no registry make images from their own files. Such an image has no shell: only
the caller's files, and the shared objects that they need. The base image for Kafka has this
machine's own Java: its containers run only `java`.
"""

from __future__ import annotations

import functools
import hashlib
import io
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import docker
from docker.errors import BuildError, DockerException, ImageNotFound
from requests.exceptions import RequestException
from testcontainers.core.docker_client import get_docker_host

from linkflap.harness.machine import cache, children
from linkflap.harness.machine.docker_package import reason
from linkflap.harness.machine.java import Java
from linkflap.harness.model.errors import EnvironmentFailure, SetupError
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


# Loaded by name at run time, so that ldd does not list them: host name lookups, and dependencies of
# native codecs.
_BY_NAME: Final = (
    "libnss_dns.so.2",
    "libnss_files.so.2",
    "libresolv.so.2",
    "libgcc_s.so.1",
    "libstdc++.so.6",
)
_FOLDERS: Final = ("bin", "etc", "tmp", "proc", "sys", "dev", "opt", "usr/bin", "usr/local/bin")
_AT_ONCE: Final = 100


def made_of_files(tag: str, fill: Callable[[Path, Path], None], *, changes: Sequence[str]) -> None:
    """Makes an image of the files that `fill(root, scratch folder)` writes; `changes` are
    Dockerfile lines. Raises SetupError."""
    with tempfile.TemporaryDirectory(dir=cache.folder(), prefix=".root-") as scratch:
        root = Path(scratch) / "root"
        for folder in _FOLDERS:
            (root / folder).mkdir(parents=True)
        (root / "etc/passwd").write_text("root:x:0:0::/:/bin/false\n")
        (root / "etc/group").write_text("root:x:0:\n")
        (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
        fill(root, Path(scratch))
        archive = Path(scratch) / "root.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(root, arcname=".", filter=_plain)
        repository, _, version = tag.partition(":")
        with engine.asked(f"import {tag}", kind=SetupError):
            engine.client().api.import_image_from_file(
                str(archive), repository=repository, tag=version, changes=list(changes)
            )


def copy_libraries(root: Path, binaries: Iterable[Path], *, inside: Path) -> None:
    """Copies the shared objects that `binaries` need into `root`, except those in `inside`, which
    are there already."""
    for library in sorted(set(_libraries(list(binaries), inside))):
        target = root / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


def _libraries(binaries: Sequence[Path], inside: Path) -> Iterator[Path]:
    """This machine's shared objects for these programs, including the loader and those loaded by
    name."""
    found: set[Path] = set()
    for begin in range(0, len(binaries), _AT_ONCE):
        found |= _linked(binaries[begin : begin + _AT_ONCE], inside)
    yield from found
    for folder in {library.parent for library in found}:
        yield from (folder / by_name for by_name in _BY_NAME if (folder / by_name).exists())


def _linked(binaries: Sequence[Path], inside: Path) -> set[Path]:
    try:
        done = subprocess.run(
            ["ldd", *binaries], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentFailure(
            f"ldd {binaries[0]} failed ({error}); install it, or give images build a --base"
        ) from error
    paths = (
        Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+)(?= \(0x)", done.stdout, re.MULTILINE)
    )
    return {path for path in paths if not path.is_relative_to(inside)}


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Owned by root, readable by everyone, whoever made it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode = (
        0o1777
        if entry.name == "./tmp"
        else entry.mode | 0o444 | (0o111 if entry.isdir() or entry.mode & 0o100 else 0)
    )
    return entry


_MODULES: Final = (
    "java.base,java.compiler,java.desktop,java.logging,java.management,java.naming,java.net.http,java.scripting,"
    "java.security.jgss,java.security.sasl,java.sql,java.xml,jdk.crypto.ec,jdk.management,jdk.unsupported,jdk.zipfs,jdk.jcmd,jdk.net"
)
_CHANGES: Final = ("ENV PATH=/opt/java/bin:/usr/local/bin:/usr/bin:/bin",)
_WITHIN: Final = 300.0
_RECIPE: Final = "3"


def java_base_name(java: Java) -> str:
    """The name of the image for exactly this Java."""
    state = f"{_RECIPE}{_MODULES}{java.path}{java.path.stat().st_mtime_ns}"
    return f"linkflap-base:java{java.major}-{hashlib.sha256(state.encode()).hexdigest()[:12]}"


def make_java_base(java: Java) -> str:
    """Makes the image and returns its name. Raises SetupError."""

    def fill(root: Path, scratch: Path) -> None:
        own = root / "opt" / "java"
        _copy_java(java, own, scratch)
        copy_libraries(root, (own / "bin" / "java", *own.rglob("*.so")), inside=own)

    tag = java_base_name(java)
    made_of_files(tag, fill, changes=_CHANGES)
    return tag


def _copy_java(java: Java, target: Path, scratch: Path) -> None:
    """Copies the Java: reduced by jlink if it is a JDK, else completely."""
    jlink = java.home / "bin" / "jlink"
    if not (jlink.is_file() and (java.home / "jmods").is_dir()):
        shutil.copytree(java.home, target)  # follows links: a distribution's conf is a link to /etc
        return
    command = [
        str(jlink),
        "--add-modules",
        _MODULES,
        "--no-header-files",
        "--no-man-pages",
        "--output",
        str(target),
    ]
    _run_java_tool(command, "jlink", java, scratch)
    # jlink omits the JDK's own class archive, which the archives of Kafka's classes need.
    _run_java_tool([str(target / "bin" / "java"), "-Xshare:dump"], "java", java, scratch)


def _run_java_tool(command: list[str], name: str, java: Java, scratch: Path) -> None:
    output = scratch / f"{name}.log"
    if children.run(command, name=name, folder=scratch, output=output, within=_WITHIN):
        lines = output.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise SetupError(
            f"{name} of {java.home} failed ({lines[-1]}); use another JDK (JAVA_HOME), or images "
            "build --base IMAGE"
        )
