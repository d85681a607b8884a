"""`python -m linkflap.harness.mirrors.shadow FOLDER`: runs one shadow until it has failed over.

Its configuration is shadow.json in FOLDER. Exit status 0: it has handed its partitions over.
SIGTERM ends it at once (status 143), and its partitions then have no leader. After any other end,
the last line of its log gives the reason.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

from linkflap.harness.mirrors.shadow.control import Control, bound
from linkflap.harness.mirrors.shadow.settings import new_token, read
from linkflap.harness.mirrors.shadow.shadow import Shadow
from linkflap.harness.model.errors import LinkflapError
from linkflap.harness.wire.access import Unanswered

log = logging.getLogger("shadow")


async def run(folder: Path) -> None:
    config = read(folder)
    port = bound(config)
    shadow = Shadow(config, folder)
    control = Control(shadow, port, new_token(folder))
    work = asyncio.create_task(shadow.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    await control.start()
    try:
        await work
    finally:
        control.close()


def main() -> int:
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s.%(msecs)03d %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stdout,
    )
    try:
        asyncio.run(run(Path(sys.argv[1])))
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    except (LinkflapError, Unanswered) as error:
        log.error("ended: %s", error)
        return getattr(error, "exit_code", LinkflapError.exit_code)
    log.info("handed over")
    return 0


if __name__ == "__main__":
    sys.exit(main())
