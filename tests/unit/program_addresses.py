"""Addresses for a program: two clusters, and the client links into them."""

from __future__ import annotations

from types import SimpleNamespace

ADDRESSES = SimpleNamespace(
    clusters={
        name: SimpleNamespace(bootstrap=f"127.0.0.1:{port}") for name, port in (("A", 1), ("B", 2))
    },
    links={
        "*->A": SimpleNamespace(bootstrap="127.0.0.1:11"),
        "*->B": SimpleNamespace(bootstrap="127.0.0.1:12"),
    },
)
