"""What replicates over a link: one module and one line here per kind.

A factory takes `(spec, link, deployment, recorder)` and starts nothing; it raises InputError for options that its mirror does
not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from harness.mirrors import mm2
from harness.model.errors import InputError
from harness.model.protocols import Deployment, Mirror, Recorder
from harness.model.scenario import MirrorSpec
from harness.model.topology import LinkSpec


class MirrorFactory(Protocol):
    def __call__(self, spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder) -> Mirror: ...


MIRRORS: Final[Mapping[str, MirrorFactory]] = {
    "mm2": mm2.make,
}


def make_mirror(spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder) -> Mirror:
    """The mirror of `spec.kind` on `link`, not started. Raises InputError for an unknown kind, option or value."""
    factory = MIRRORS.get(spec.kind)
    if factory is None:
        raise InputError(f"there is no mirror {spec.kind!r}; there is {', '.join(MIRRORS)}")
    return factory(spec, link, deployment, recorder)
