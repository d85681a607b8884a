"""Which images a run needs beside Kafka's, and whether a foreign image can run Kafka.

Builds, fetches and copies nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from linkflap.harness.model.errors import LinkflapError
from linkflap.harness.runtimes.docker.images import builds, custom_image, proxy_image, python_image


def besides() -> Mapping[str, str | None]:
    """What every run may need -> its image, or None where there is none. Raises SetupError when the
    engine does not answer."""
    proxy = next(
        (name for name in (proxy_image.tag(), proxy_image.OFFICIAL) if builds.identity(name)), None
    )
    python = python_image.tag() if python_image.there() else None
    return {"Toxiproxy": proxy, "this machine's Python": python}


def reason_against(asked: str) -> str | None:
    """Why an image that the engine has is no Kafka to run; None for one that is, and for what is no
    image's name."""
    if not custom_image.is_reference(asked):
        return None
    try:
        custom_image.look(asked)
    except LinkflapError as error:
        return str(error)
    return None
