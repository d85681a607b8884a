"""The manifest of a user's own mirror (TOML): its guarantee, and the commands that run it. Reading
a manifest executes nothing.

Commands are lists of words, started without a shell; each word is passed unchanged. The first word
is a program: a path relative to the manifest's folder, where commands run, or a name in PATH. The
folder of linkflap's own Python comes first in PATH.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from linkflap.harness.machine.java import java_for
from linkflap.harness.machine.toml_file import UNIT, KeyPath, TomlFile, content_and_lines
from linkflap.harness.machine.user_programs import program
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.guarantee import (
    Allowance,
    Appended,
    Delivery,
    Equality,
    GroupOffsets,
    Guarantee,
    ProducerIds,
    Rule,
)
from linkflap.harness.model.history import Isolation
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.scenario import Option
from linkflap.harness.runtimes.distribution.kafka import kafka, look_for

Words = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1)]


Seconds = Annotated[float, Meta(gt=0, le=3600, extra={UNIT: "seconds"})]


class ManifestTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all tables: immutable, unknown keys are errors."""


class AllowedTable(ManifestTable, frozen=True, kw_only=True):
    """The same fields as `harness.model.guarantee.Allowance`."""

    kind: str
    rule: Rule
    window: str
    bound: str
    citation: str
    because: str
    reach_before: float = 0.0
    reach_after: float = 0.0
    cluster: str = ""
    era: str = ""


class GuaranteeTable(ManifestTable, frozen=True, kw_only=True):
    """The same fields as `harness.model.guarantee.Guarantee`, without those about a journal, which
    such a mirror does not have."""

    equality: Equality
    offsets_kept: bool
    producer_ids: ProducerIds
    leader_epochs_kept: bool = False
    leader_epoch_raised: bool = False
    delivery: Delivery = "at-least-once"
    isolation: Isolation = "read_uncommitted"
    group_offsets: GroupOffsets = "none"
    group_offset_records: Annotated[int, Meta(ge=0)] = 100
    group_offset_seconds: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    appended_at_promotion: list[Appended] = []
    allowed: list[AllowedTable] = []


class FailoverTable(ManifestTable, frozen=True, kw_only=True):
    """Commands that make the destination writable: exit status 0 once it is."""

    forced: Words | None = None
    planned: Words | None = None


class CommandsTable(ManifestTable, frozen=True, kw_only=True):
    """The commands; only `start` is required."""

    start: Words
    ready: Words | None = None
    lag: Words | None = None
    stop: Words | None = None
    crash: Words | None = None
    restart: Words | None = None
    failover: FailoverTable = FailoverTable()
    failback: Words | None = None
    """Prepares a former source as a destination of the reverse link: exit status 0 once it is
    ready."""


class SecondsTable(ManifestTable, frozen=True, kw_only=True):
    """The timeout of each command, in seconds. `ready`: from the start until a record has
    arrived."""

    ready: Seconds = 90.0
    lag: Seconds = 10.0
    stop: Seconds = 30.0
    crash: Seconds = 30.0
    failover: Seconds = 120.0
    failback: Seconds = 120.0


SCHEMA: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")


class MirrorManifest(ManifestTable, frozen=True, kw_only=True):
    """A user's own mirror."""

    schema: int
    name: str
    guarantee: GuaranteeTable
    commands: CommandsTable
    environment: Mapping[str, str] = {}
    seconds: SecondsTable = SecondsTable()
    kafka: str = ""
    """The Kafka for its commands: a release, or a folder of jars."""

    @property
    def every_command(self) -> Mapping[str, Sequence[str]]:
        """Name -> words, for the commands that the manifest has."""
        named = {
            name: getattr(self.commands, name)
            for name in ("start", "ready", "lag", "stop", "crash", "restart", "failback")
        }
        named |= {
            f"failover {kind}": getattr(self.commands.failover, kind)
            for kind in ("forced", "planned")
        }
        return {name: words for name, words in named.items() if words}

    @property
    def promised(self) -> Guarantee:
        """The guarantee of the mirror, as the verifier needs it."""
        fields = msgspec.structs.asdict(self.guarantee)
        fields["appended_at_promotion"] = tuple(self.guarantee.appended_at_promotion)
        fields["allowed"] = tuple(
            Allowance(**msgspec.structs.asdict(line)) for line in self.guarantee.allowed
        )
        return Guarantee(**fields, reversible=self.commands.failback is not None)


def read(path: Path, *, runnable: bool = True) -> MirrorManifest:
    """Reads a manifest; unless it is to run (`runnable`), its programs need not be there. Raises
    InputError: one sentence with the file and line, what is wrong, and how to fix it."""
    content, where = content_and_lines(path, "manifest", "name one with manifest=FILE")
    file = TomlFile(path=path, content=content, where=where)
    file.check_schema(SCHEMA)
    manifest = file.to(MirrorManifest)
    for at, reason in _wrong(manifest):
        file.fail(at, reason)
    if manifest.kafka and runnable:
        file.placed(("kafka",), lambda: look_for(_asked_kafka(manifest, path)))
    for name, words in manifest.every_command.items() if runnable else ():
        if program(words[0], path.parent) is None:
            file.fail(
                ("commands", *name.split()),
                f"command {name}: there is no program {words[0]!r}; give its path, or install it",
            )
    return manifest


def _asked_kafka(manifest: MirrorManifest, path: Path) -> str:
    """A release, or an absolute path."""
    return (
        str(path.parent / Path(manifest.kafka).expanduser())
        if os.sep in manifest.kafka
        else manifest.kafka
    )


def java_of(manifest: MirrorManifest, path: Path) -> Mapping[str, str]:
    """Environment variables with the Java and the jars of its `kafka`. Downloads them if necessary.
    Raises SetupError."""
    if not manifest.kafka:
        return {}
    found = kafka(_asked_kafka(manifest, path))
    return {
        "LINKFLAP_JAVA": str(java_for(found.version).path),
        "LINKFLAP_CLASSPATH": found.classpath,
    }


def _wrong(manifest: MirrorManifest) -> Iterator[tuple[KeyPath, str]]:
    """Contradictions in the guarantee, and invalid names: where, what."""
    if not _NAME.fullmatch(manifest.name):
        yield (
            ("name",),
            f"name is {manifest.name!r}; give it at most 60 letters, digits, dots, _ and -, and "
            "begin with a letter or digit",
        )
    promised = manifest.guarantee
    if promised.equality != "order" and not promised.offsets_kept:
        yield (
            ("guarantee", "equality"),
            f"equality is {promised.equality}, which compares records at the same offset; declare "
            "offsets_kept = true, or order",
        )
    if promised.producer_ids == "replaced" and promised.equality == "bytes":
        yield (
            ("guarantee", "producer_ids"),
            "equality is bytes, but producer_ids are replaced, so no batch can be equal;"
            ' declare equality = "records"',
        )
    for name, value in manifest.environment.items():
        if (
            not name.replace("_", "a").isalnum()
            or name[:1].isdigit()
            or name.startswith("LINKFLAP_")
            or "\0" in value
        ):
            yield (
                ("environment", name),
                f"environment: {name!r} cannot be set; a name has letters, digits and _, and does "
                "not begin with LINKFLAP_",
            )


ABOUT: Final[Mapping[str, OptionAbout]] = {
    "manifest": OptionAbout(
        default="",
        takes="a file (linkflap docs own-mirror)",
        about="its guarantee, and the commands that run it",
    )
}


def path_of(options: Mapping[str, Option]) -> Path:
    """The path of the manifest. Raises InputError for any other option, or when it is missing."""
    if unknown := sorted(options.keys() - {"manifest"}):
        raise InputError(f"mirror command has no option {unknown[0]!r}; it has manifest")
    given = options.get("manifest")
    if not isinstance(given, str) or not given:
        raise InputError(
            "mirror command needs a manifest; give it with --set manifest=FILE, or in a scenario "
            "file's mirror.options"
        )
    return Path(given).absolute()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandMirrorOptions:
    """The mirror in run.json: every command, and the names of its environment variables without
    their values."""

    manifest: str
    name: str
    commands: str
    environment: str


def options(given: Mapping[str, Option]) -> CommandMirrorOptions:
    """The options of a mirror by commands. Raises InputError."""
    path = path_of(given)
    manifest = read(path)
    commands = "; ".join(
        f"{name}: {shlex.join(words)}" for name, words in manifest.every_command.items()
    )
    return CommandMirrorOptions(
        manifest=str(path),
        name=manifest.name,
        commands=commands,
        environment=", ".join(sorted(manifest.environment)),
    )


def guarantee(given: Mapping[str, Option]) -> Guarantee:
    """The guarantee that the manifest declares. Raises InputError."""
    return read(path_of(given)).promised
