"""Where a server listens: on IPv6 as well as IPv4, where the machine has both."""

from __future__ import annotations

import errno
import socket
from typing import Final

from tidegate.service.settings import Address

_NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})


def listen(address: Address, backlog: int) -> socket.socket:
    """A socket that listens there. ``[::]`` stands for all IPv4 addresses as well, and for these alone where the
    machine has no IPv6. Raises ``OSError``."""
    place = (address.host, address.port)
    if ":" not in address.host:
        return socket.create_server(place, backlog=backlog)
    if not address.is_any:
        return socket.create_server(place, family=socket.AF_INET6, backlog=backlog)
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(place, family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    return socket.create_server(("", address.port), backlog=backlog)
