"""The proxies of a link on its server: created with the requested cuts and toxics, and created
again to remove some."""

from __future__ import annotations

from linkflap.harness.runtimes.toxiproxy.api import Toxic, ToxiproxyApi
from linkflap.harness.runtimes.toxiproxy.server import ToxiproxyServer


class Proxies:
    """One proxy per broker. `_cuts` and `_toxics` are the requested state."""

    _proxies: dict[int, tuple[int, str]]
    _process: ToxiproxyServer
    _cuts: set[str]
    _toxics: dict[str, Toxic]
    _api: ToxiproxyApi | None

    def _populate(self) -> None:
        """Starts a new server with the requested proxies, cuts and toxics. Raises Unreachable or
        SetupError."""
        self._forget()
        self._process.start()
        self._api = ToxiproxyApi(self._process.port)
        for broker in self._proxies:
            self._make(self._api, broker)

    def _make(self, api: ToxiproxyApi, broker: int) -> None:
        """Creates a proxy with its requested state; toxics first, so that they apply to every
        connection."""
        port, upstream = self._proxies[broker]
        api.create(
            _proxy(broker),
            listen=f"{self._process.listens_on}:{port}",
            upstream=upstream,
            enabled=False,
        )
        for toxic in self._toxics.values():
            api.add(_proxy(broker), toxic)
        if not self._cuts:
            api.enable(_proxy(broker), enabled=True)

    def _forget(self) -> None:
        if self._api is not None:
            self._api.close()
            self._api = None
        self._process.kill()

    def _add(self, api: ToxiproxyApi, toxic: Toxic) -> None:
        for broker in self._proxies:
            api.add(_proxy(broker), toxic)

    def _disown(self, owner: str | None) -> bool:
        """Removes an owner's toxics from the requested state. Returns whether there were any."""
        kept = {
            name: toxic
            for name, toxic in self._toxics.items()
            if owner is not None and toxic.owner != owner
        }
        gone, self._toxics = len(kept) < len(self._toxics), kept
        return gone

    def _replace(self, api: ToxiproxyApi) -> None:
        for broker in self._proxies:
            api.destroy(_proxy(broker))
            self._make(api, broker)

    def _enable(self, api: ToxiproxyApi, *, enabled: bool) -> None:
        for broker in self._proxies:
            api.enable(_proxy(broker), enabled=enabled)


def _proxy(broker: int) -> str:
    return f"broker-{broker}"
