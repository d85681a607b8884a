"""The Java of an image, as it says itself."""

from __future__ import annotations

import re
from typing import Final

from harness.model.errors import SetupError
from harness.runtimes.docker import engine

_WITHIN: Final = 60
_LEAST: Final = 17


def java_in(name: str, *, mend: str) -> int:
    """The feature release of the Java on an image's PATH. Raises SetupError."""
    with engine.claimed("base") as labels, engine.asked(f"run java in {name}", kind=SetupError, mend=mend):
        container = engine.client().containers.create(name, ["-version"], entrypoint=["java"], network_mode="none", labels=labels)
        try:
            container.start()
            container.wait(timeout=_WITHIN)
            said = container.logs()
        finally:
            container.remove(force=True, v=True)
    release = re.search(r'version "(\d+)', said.decode(errors="replace"))
    if release is None or int(release[1]) < _LEAST:
        raise SetupError(f"the Java of image {name} is not {_LEAST} or later; {mend}")
    return int(release[1])
