"""Search ids that say by themselves, signed, which pages a search has shown: any process that has the secret can check one."""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from random import Random

from drag_ray.types import Evidence

MAX_PAGES = 100
"""of a search that feedback can name"""
MAX_ID_CHARS = 600
SHORT_CHARS = 12
"""of an id that name it in the table: the Base64 of its nonce"""
_NONCE_BYTES, _TIME_BYTES, _PAGE_BYTES, _SIGNATURE_BYTES = 9, 4, 4, 16
_HEAD_BYTES = _NONCE_BYTES + _TIME_BYTES
_IPV6_SITE_BITS = 64
"""of an address that one client is given; the others it chooses itself"""


@dataclass(frozen=True, slots=True)
class IssuedSearch:
    """Content of a search id: the search's name in the table, and the time of its issue in seconds since 1970."""

    short: str
    time: int
    _pages: tuple[bytes, ...]
    _nonce: bytes
    _secret: bytes

    def find_rank(self, page: Evidence) -> int:
        """The rank at which the search showed a page, from 1; 0 where it did not."""
        digest = _hash_page(self._secret, self._nonce, page)
        return self._pages.index(digest) + 1 if digest in self._pages else 0


class SearchIds:
    """Issues search ids, reads them, and gives clients and sessions pseudonyms. `secret`: what all processes of the endpoint have
    in common, and nobody else has."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def draw_nonce(self) -> bytes:
        """The part of a search id that no other one has."""
        return secrets.token_bytes(_NONCE_BYTES)

    def seed(self, nonce: bytes) -> Random:
        """Draws that belong to a search id: who has the secret can repeat them, and nobody else can foresee or read them."""
        return Random(hmac.digest(self._secret, b"draw:" + nonce, hashlib.sha256))

    def issue(self, pages: Sequence[Evidence], now: int, nonce: bytes = b"", groups: Collection[str] | None = None) -> str:
        """The id of a search that shows these pages, of which the first `MAX_PAGES` count, to a key of some groups, if of any."""
        nonce = nonce or self.draw_nonce()
        shown = b"".join(_hash_page(self._secret, nonce, page) for page in pages[:MAX_PAGES])
        said = nonce + now.to_bytes(_TIME_BYTES) + shown
        return base64.urlsafe_b64encode(said + self._sign(said, groups)).rstrip(b"=").decode()

    def read(self, search_id: str, groups: Collection[str] | None = None) -> IssuedSearch | None:
        """The content of an id; None where it was not issued with this secret, or to a key of other groups: it says what was
        shown to that."""
        try:
            data = base64.b64decode(search_id + "=" * (-len(search_id) % 4), altchars=b"-_", validate=True)
        except ValueError:
            return None
        said, signature = data[:-_SIGNATURE_BYTES], data[-_SIGNATURE_BYTES:]
        if len(said) < _HEAD_BYTES or not hmac.compare_digest(self._sign(said, groups), signature):
            return None
        pages = tuple(said[start : start + _PAGE_BYTES] for start in range(_HEAD_BYTES, len(said), _PAGE_BYTES))
        nonce, time = said[:_NONCE_BYTES], int.from_bytes(said[_NONCE_BYTES:_HEAD_BYTES])
        return IssuedSearch(search_id[:SHORT_CHARS], time, pages, nonce, self._secret)

    def name_client(self, address: str) -> str:
        """The pseudonym of an address; the addresses that one client of IPv6 can choose among have the same."""
        try:
            parsed = ip_address(address)
        except ValueError:
            return self._name("client", address)
        if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
            return self._name("client", str(int(parsed) >> _IPV6_SITE_BITS))
        return self._name("client", str(getattr(parsed, "ipv4_mapped", None) or parsed))

    def name_session(self, session: str) -> str:
        """The pseudonym of a session; empty for none."""
        return self._name("session", session) if session else ""

    def _name(self, kind: str, name: str) -> str:
        return hmac.digest(self._secret, f"{kind}:{name}".encode(), hashlib.sha256).hex()[:16]

    def _sign(self, said: bytes, groups: Collection[str] | None) -> bytes:
        whose = json.dumps(None if groups is None else sorted(groups)).encode()
        return hmac.digest(self._secret, b"search:" + whose + said, hashlib.sha256)[:_SIGNATURE_BYTES]


def _hash_page(secret: bytes, nonce: bytes, page: Evidence) -> bytes:
    named = json.dumps([page.file, page.page_number]).encode()
    return hmac.digest(secret, b"page:" + nonce + named, hashlib.sha256)[:_PAGE_BYTES]
