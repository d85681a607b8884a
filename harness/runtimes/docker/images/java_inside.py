"""The version of an image's Java, as that Java reports it."""

from __future__ import annotations

import re
from typing import Final

from linkflap.harness.model.errors import SetupError
from linkflap.harness.runtimes.docker import engine

_WITHIN: Final = 60
_LEAST: Final = 17
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
            status = int(container.wait(timeout=_WITHIN)["StatusCode"])
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
    if int(release[1]) < _LEAST:
        raise SetupError(
            f"the Java of image {name} is {release[1]}, and {_LEAST} or later is needed; {fix}"
        )
    return int(release[1])
