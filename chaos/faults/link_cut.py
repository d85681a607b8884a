"""link-cut: the complete path of a link is cut for the window; open connections end, new ones are
refused.

Breaks    every connection over the link, as a pulled cable with a firewall that answers would.
Bite      a round trip that was answered before is not answered in the window.
Heal      the proxies let connections through, carry no toxic of ours, and a round trip is as quick
          as before.
"""

from __future__ import annotations

from linkflap.chaos.faults.link_path import EndedLink


class LinkCut(EndedLink):
    """Cuts a link: open connections end, new ones are refused."""

    def end(self) -> None:
        self._path.cut()
