"""Which addresses of the network a tool may reach: those of the public internet."""

import ipaddress

_REFUSED = tuple(
    ipaddress.ip_network(network)
    for network in (
        "64:ff9b::/96",  # NAT64: leads to any IPv4 address
        "64:ff9b:1::/48",
        "2002::/16",  # 6to4, likewise
        "2001::/32",  # Teredo, likewise
        "::/96",  # IPv4 within IPv6, of old
        "::ffff:0:0:0/96",
        "192.0.0.0/24",  # for protocols; a service of metadata among them
        "192.88.99.0/24",  # relays of 6to4
        "168.63.129.16/32",  # Azure's service of metadata, which is in public space
    )
)


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet.

    It is not where it is private, shared, of a link, of this machine, multicast, reserved or for documentation; metadata services
    of clouds are among these. An IPv6 address of `::ffff:0:0/96` is taken for the IPv4 one that it stands for; those that stand
    for one in other ways are none.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return is_public(str(parsed.ipv4_mapped))
        if parsed.is_site_local:
            return False
    known = any(parsed in network for network in _REFUSED if network.version == parsed.version)
    return parsed.is_global and not (known or parsed.is_multicast or parsed.is_reserved or parsed.is_unspecified)
