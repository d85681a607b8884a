"""link-reset: every connection over a link is reset (TCP RST) as soon as a byte comes back, new
ones too.

Breaks    clients' sessions, without any silence: the worst case for a client that retries at once.
Bite      a round trip that was answered before ends at once without an answer.
Heal      no toxic of ours is left, the proxies are enabled, a round trip is as quick as before.
"""

from __future__ import annotations

from linkflap.chaos.faults.link_path import EndedLink


class LinkReset(EndedLink):
    """Resets every connection over a link."""

    def end(self) -> None:
        self._path.add("reset_peer", "responses", timeout=0)
