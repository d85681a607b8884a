"""What is done from inside a container's network: run there as a program, by the standard library
alone.

    inside.py block 100 10.0.0.3:9094 …  packets of connections that it opens to these addresses
                                         vanish from now on
    inside.py unblock 100                for this number they do not any more: each has rules of its
                                         own, and they add up
    inside.py ask 10.0.0.3:9094 1.0 HEX  sends bytes there; prints the seconds until something came
                                         back, or "silence"

A blocked address is looked up in a routing table of its own, by destination and port (ip-rule(8)),
where it leads to a neighbour that does not exist: packets are lost on the wire without an error, as
behind a broken switch. Answers to connections that others opened go to other ports, so they pass: a
partition can be asymmetric.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from typing import Final

_TABLE: Final = 1279
_NOBODY: Final = "169.254.12.79"
_NOBODYS_LINK: Final = bytes.fromhex("02004c494e4b")
_REQUEST, _ACK, _REPLACE, _CREATE = 0x1, 0x4, 0x100, 0x400
_NEW_ROUTE, _NEW_NEIGHBOUR, _NEW_RULE, _DELETE_RULE = 24, 28, 32, 33
_ONLINK, _PERMANENT, _TO_TABLE = 4, 0x80, 1
_UNICAST, _STATIC = 1, 4
_DST, _OIF, _GATEWAY, _ROUTE_TABLE = 1, 4, 5, 15
_PRIORITY, _RULE_TABLE, _PROTOCOL, _PORTS = 6, 15, 22, 24
_LINK_ADDRESS: Final = 2
_MOST: Final = 256


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _ask(kind: int, flags: int, body: bytes) -> int:
    """Sends one request to the kernel (rtnetlink(7)). Returns 0 or an errno."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.bind((0, 0))
        kernel.send(
            struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, 1, 0) + body
        )
        return -int(struct.unpack_from("=i", kernel.recv(65536), 16)[0])


def _must(kind: int, flags: int, body: bytes) -> None:
    if error := _ask(kind, flags, body):
        raise OSError(error, "the kernel refuses a rule by port")


def _rule(number: int, address: str = "", port: int = 0) -> bytes:
    """`number` is the rule's priority, and identifies its owner."""
    where = b"" if not address else _attribute(_DST, socket.inet_aton(address))
    if port:
        where += _attribute(_PROTOCOL, bytes([socket.IPPROTO_TCP])) + _attribute(
            _PORTS, struct.pack("=HH", port, port)
        )
    header = struct.pack(
        "=BBBBBBBBI", socket.AF_INET, 32 if address else 0, 0, 0, 0, 0, 0, _TO_TABLE, 0
    )
    return (
        header
        + _attribute(_RULE_TABLE, struct.pack("=I", _TABLE))
        + _attribute(_PRIORITY, struct.pack("=I", number))
        + where
    )


def _route() -> bytes:
    """Routes everything in the table to an address without a host, over the first interface other
    than loopback."""
    header = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 0, _STATIC, 0, _UNICAST, _ONLINK)
    table, out = (
        _attribute(_ROUTE_TABLE, struct.pack("=I", _TABLE)),
        _attribute(_OIF, struct.pack("=I", _interface())),
    )
    return header + table + out + _attribute(_GATEWAY, socket.inet_aton(_NOBODY))


def _interface() -> int:
    return next(number for number, name in socket.if_nameindex() if name.startswith("eth"))


def block(number: int, addresses: list[str]) -> None:
    """Raises OSError if the kernel refuses."""
    neighbour = struct.pack("=BBHiHBB", socket.AF_INET, 0, 0, _interface(), _PERMANENT, 0, 0)
    neighbour += _attribute(_DST, socket.inet_aton(_NOBODY)) + _attribute(
        _LINK_ADDRESS, _NOBODYS_LINK
    )
    # Neighbour and route exist if something else is blocked already, and remain: without rules,
    # nothing uses them.
    _must(_NEW_NEIGHBOUR, _CREATE | _REPLACE, neighbour)
    _must(_NEW_ROUTE, _CREATE | _REPLACE, _route())
    for address in addresses:
        host, _, port = address.rpartition(":")
        _must(_NEW_RULE, _CREATE, _rule(number, host, int(port)))


def unblock(number: int) -> None:
    """Succeeds also if nothing is blocked, or the network is gone."""
    for _ in range(_MOST):
        if _ask(_DELETE_RULE, 0, _rule(number)):
            break


def ask(address: str, within: float, request: bytes) -> str:
    """Seconds of a round trip on a new connection, or "silence"."""
    host, _, port = address.rpartition(":")
    began = time.monotonic()
    try:
        with socket.create_connection((host, int(port)), timeout=within) as path:
            path.sendall(request)
            path.settimeout(max(0.01, within - (time.monotonic() - began)))
            answered = path.recv(1)
            return f"{time.monotonic() - began:.6f}" if answered else "silence"
    except OSError:
        return "silence"


def main(words: list[str]) -> int:
    try:
        if words[0] == "ask":
            print(ask(words[1], float(words[2]), bytes.fromhex(words[3])))  # noqa: T201 - its answer
        elif words[0] == "block":
            block(int(words[1]), words[2:])
        else:
            unblock(int(words[1]))
    except OSError as error:
        print(error)  # noqa: T201 - its answer
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
