"""The images that a run needs besides Kafka's, and whether a user's image can run Kafka. Builds,
downloads and copies nothing."""

from __future__ import annotations

from collections.abc import Mapping

from linkflap.harness.model.errors import LinkflapError
from linkflap.harness.runtimes.docker.images import builds, custom_image, proxy_image, python_image


def besides() -> Mapping[str, str | None]:
    """Purpose -> its image, or None if there is none. Raises SetupError when the engine does not
    answer."""
    proxy = next(
        (name for name in (proxy_image.tag(), proxy_image.OFFICIAL) if builds.identity(name)), None
    )
    python = python_image.tag() if python_image.there() else None
    return {"Toxiproxy": proxy, "this machine's Python": python}


def reason_against(asked: str) -> str | None:
    """Why an image in the engine cannot run Kafka; None if it can, and for a name that is not an
    image's."""
    if not custom_image.is_reference(asked):
        return None
    try:
        custom_image.look(asked)
    except LinkflapError as error:
        return str(error)
    return None
