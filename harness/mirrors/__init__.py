"""Mirrors: what replicates over a link. Each kind is one module and one entry of `MIRRORS`.

A mirror's class takes `(spec, link, deployment, recorder)` and starts nothing. It raises InputError
for an option that it does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast

from linkflap.harness.guarantees import DECLARATIONS, declared
from linkflap.harness.mirrors import mm2_config
from linkflap.harness.mirrors.cluster_mirroring import settings as cluster_mirroring_settings
from linkflap.harness.mirrors.command import manifest
from linkflap.harness.mirrors.shadow import settings as shadow_settings
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.faults import OF_BROKERS_MIRRORS
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.protocols import Deployment, Mirror, Recorder
from linkflap.harness.model.scenario import NO_MIRROR, MirrorSpec, Option, Scenario
from linkflap.harness.model.texts import nearest
from linkflap.harness.model.topology import LinkSpec

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class MirrorFactory(Protocol):
    def __call__(
        self, spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder
    ) -> Mirror: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorKind:
    """One kind of mirror.

    `factory` is its class, as module:name. The module is imported only when a mirror is made,
    because the shadow's own process imports this package and needs no factory. `options` reads the
    options of the kind, and raises InputError for unknown ones; `about` describes them for the
    command line. `sound` are options with the values that are expected to give valid runs;
    generated scenarios use these.

    `refusal` returns why the kind cannot play a scenario, None if it can. `without` are faults that
    do not apply to it, and why; `not_in` are runtimes that do not apply, and why.
    """

    factory: str
    options: Callable[[Mapping[str, Option]], DataclassInstance]
    about: Mapping[str, OptionAbout]
    sound: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)
    refusal: Callable[[Scenario], str | None] = lambda _: None
    without: Mapping[str, str] = field(default_factory=dict)
    not_in: Mapping[str, str] = field(default_factory=dict)
    asks_source: bool = False
    """Whether a failover may be refused while the source is dead. Half of the generated failovers
    then stall the source instead."""

    @property
    def make(self) -> MirrorFactory:
        module, _, name = self.factory.partition(":")
        return cast(MirrorFactory, getattr(import_module(f"{__name__}.{module}"), name))


_A_PROCESS: Final[Mapping[str, str]] = dict.fromkeys(
    OF_BROKERS_MIRRORS,
    "it is a process outside the brokers, without admin commands or states of its own in them; use "
    "--mirror cluster-mirroring",
)
MIRRORS: Final[Mapping[str, MirrorKind]] = {
    cluster_mirroring_settings.KIND: MirrorKind(
        factory="cluster_mirroring.mirror:ClusterMirror",
        options=cluster_mirroring_settings.options,
        about=cluster_mirroring_settings.ABOUT,
        refusal=cluster_mirroring_settings.refusal,
        without=cluster_mirroring_settings.WITHOUT,
        not_in=cluster_mirroring_settings.NOT_IN,
        asks_source=True,
    ),
    "command": MirrorKind(
        factory="command.mirror:CommandMirror",
        options=manifest.options,
        about=manifest.ABOUT,
        without=_A_PROCESS,
    ),
    "mm2": MirrorKind(
        factory="connect:mirror_maker",
        options=mm2_config.options,
        about=mm2_config.ABOUT,
        refusal=mm2_config.refusal,
        sound=mm2_config.SOUND,
        without=_A_PROCESS,
    ),
    "shadow": MirrorKind(
        factory="shadow.mirror:ShadowMirror",
        options=shadow_settings.options,
        about=shadow_settings.ABOUT,
        sound=shadow_settings.SOUND,
        without=_A_PROCESS,
        not_in={
            "attached": "it registers as a broker of the destination cluster, which linkflap did "
            "not start; use --mirror mm2"
        },
    ),
}


BY_COMMAND: Final = "command"
"""The kind of the users' own mirrors, whose guarantees are in their manifests."""


def check_kind(name: str) -> None:
    """Raises InputError for an unknown kind."""
    if name not in MIRRORS:
        raise InputError(
            f"there is no mirror {name!r}{nearest(name, MIRRORS)}; known: {', '.join(MIRRORS)}"
        )


def resolve(spec: MirrorSpec) -> MirrorSpec:
    """The mirror spec with all its options and its guarantee. Raises InputError for an unknown
    kind, option or value."""
    if spec.kind == NO_MIRROR.kind:
        if spec.options:
            raise InputError(
                f"there is no mirror that could have {', '.join(spec.options)}; leave that out, or "
                "write a topology with a link, for example A->B"
            )
        return declared(spec)
    check_kind(spec.kind)
    own = asdict(MIRRORS[spec.kind].options(spec.options))
    passed_on = {name: value for name, value in spec.options.items() if "." in name}
    resolved = replace(spec, resolved={**own, **passed_on})
    return declared(
        replace(resolved, declared=manifest.guarantee(spec.options))
        if spec.kind == BY_COMMAND
        else resolved
    )


def check(spec: MirrorSpec, *, reversible: bool = False) -> None:
    """Raises InputError for an unknown kind, option or value; with `reversible`, also for a kind
    that cannot be reversed."""
    if not resolve(spec).guarantee.reversible and reversible:
        known = [declared(MirrorSpec(kind=kind)) for kind in MIRRORS if kind in DECLARATIONS]
        able = ", ".join(other.kind for other in known if other.guarantee.reversible)
        raise InputError(
            f"mirror {spec.kind} cannot be reversed, which the schedule needs; use {able}, or a"
            " command whose manifest has commands.failback"
        )


def check_played(scenario: Scenario, runtime: str = "process") -> None:
    """Raises InputError where the mirror of a scenario cannot play it: in this runtime, on these
    clusters, or with these faults."""
    kind = scenario.mirror.kind
    if not scenario.topology.links or kind == NO_MIRROR.kind:
        _check_no_mirror(scenario)
        return
    if runtime in MIRRORS[kind].not_in:
        raise InputError(
            f"NOT APPLICABLE: mirror {kind} cannot be played in runtime {runtime}: "
            f"{MIRRORS[kind].not_in[runtime]}"
        )
    for fault in scenario.schedule:
        if reason := MIRRORS[kind].without.get(fault.fault):
            raise InputError(
                f"NOT APPLICABLE: fault {fault.id!r} ({fault.fault}) does not apply to mirror "
                f"{kind}: {reason}"
            )
    if reason := MIRRORS[kind].refusal(scenario):
        raise InputError(reason)


def _check_no_mirror(scenario: Scenario) -> None:
    """Raises InputError unless there is neither a link nor a mirror."""
    alone, kind = not scenario.topology.links, scenario.mirror.kind
    if alone and kind != NO_MIRROR.kind:
        raise InputError(
            f"mirror {kind} copies over a link, and the topology is one cluster alone; leave the "
            "mirror out, or write a topology with a link, for example A->B"
        )
    if not alone:
        raise InputError(
            f"mirror none is of one cluster alone, and the topology has "
            f"{', '.join(link.name for link in scenario.topology.links)}; name a mirror: "
            f"{', '.join(MIRRORS)}"
        )


def commands(spec: MirrorSpec) -> Mapping[str, Sequence[str]]:
    """Name -> words of the user's commands that a mirror runs; empty for other kinds. Raises
    InputError."""
    return (
        manifest.read(manifest.path_of(spec.options)).every_command
        if spec.kind == BY_COMMAND
        else {}
    )


def make_mirror(
    spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder
) -> Mirror:
    """The mirror of `spec.kind` on `link`, not started. Raises InputError for an unknown kind,
    option or value."""
    check(spec)
    return MIRRORS[spec.kind].make(spec, link, deployment, recorder)
