"""Random changes to the bytes of a file, as fuzzers make them."""

import random
import re

_TOKENS = tuple(
    re.findall(
        r"\S+",
        r"""null true false NaN Infinity -Infinity 1e999 -1 0 0.5 1.0 "3" 2147483648 9223372036854775808 18446744073709551616
        [] {} "" [[]] {"a":[]} "\ud800" "\u0000" " [ { ( < > & \ / % # - * ` | ~ inf nan ../../../etc/passwd %s &lt; &#0; <b> </p>
        ]]> <!-- --> <![CDATA[ <?x /Count /Kids /Length /Filter /FlateDecode obj endobj stream endstream xref trailer""",
    )
)
_BYTES = (b"\0", b"\xff", b"\x7f", b"\x80", b"\f", b"\n", b"\r", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[31m")
_NUMBER = re.compile(rb"\d+")
_MAX_REPEATS = 20_000


def mutate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The bytes with one to eight changes.

    Args:
        data: a file.
        other: another one of the kind, of which parts are taken.
    """
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        data = rng.choice(_CHANGES)(data, other, rng)
    return data


def _flip(data: bytes, other: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 4, 32)) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(data: bytes, other: bytes, rng: random.Random) -> bytes:
    return data[: rng.randint(0, len(data))]


def _drop(data: bytes, other: bytes, rng: random.Random) -> bytes:
    start, end = _pick_range(data, rng)
    return data[:start] + data[end:]


def _repeat(data: bytes, other: bytes, rng: random.Random) -> bytes:
    start, end = _pick_range(data, rng)
    times = min(rng.choice((2, 3, 50, _MAX_REPEATS)), max(2, 2**18 // max(1, end - start)))
    return data[:start] + data[start:end] * times + data[end:]


def _splice(data: bytes, other: bytes, rng: random.Random) -> bytes:
    start, end = _pick_range(other, rng)
    return _put(data, other[start:end], rng)


def _insert_token(data: bytes, other: bytes, rng: random.Random) -> bytes:
    token = rng.choice(_TOKENS).encode() if rng.random() < 0.7 else rng.choice(_BYTES)
    return _put(data, token * rng.choice((1, 1, 1, 1, 3, _MAX_REPEATS)), rng)


def _change_number(data: bytes, other: bytes, rng: random.Random) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    match = rng.choice(found)
    value = rng.choice(
        (b"0", b"1", b"-1", b"65536", b"2147483647", b"4294967296", b"99999999999999999999", b"9" * 5_000, b"1e400")
    )
    return data[: match.start()] + value + data[match.end() :]


def _put(data: bytes, piece: bytes, rng: random.Random) -> bytes:
    """The piece put in, or in the place of as many bytes."""
    place = rng.randint(0, len(data))
    return data[:place] + piece + data[place + (len(piece) if rng.random() < 0.5 else 0) :]


def _pick_range(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randint(0, len(data))
    return start, min(len(data), start + rng.choice((1, 4, 16, 64, 1024)))


_CHANGES = (_flip, _flip, _cut, _drop, _repeat, _splice, _insert_token, _insert_token, _change_number)
