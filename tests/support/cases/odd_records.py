"""Records of JSON in which whatever stands in some places, as lines of a file."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Key = tuple[str | int, ...]


def list_keys(tree: Any, key: Key = ()) -> Iterator[Key]:
    """Places of a record that can hold a value: every field and element, however deep, and the record itself."""
    yield key
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in inner:
        yield from list_keys(value, (*key, name))


ODD_VALUES = [
    *("null", "true", "false", "[]", "{}", '""', '" "', '"7"', '"a.pdf:7"', '"a.pdf:-5"', '["a.pdf", 7]'),
    *("0", "-5", "7.0", "1.5", "1e400", "NaN", "-Infinity", str(2**31), str(2**40), "9" * 5_000, f'"{"9" * 5_000}"'),
    *('"\\ud800"', '"a\\udcff.pdf"', '"a\\u0000b"', '{"\\ud800": "\\udfff"}', '"\ufeff\ufffe\u2028"'),
    *("[" * 100_000 + "]" * 100_000, "[" * 900 + "]" * 900, '{"file":' * 500 + "1" + "}" * 500, f'"{"x" * 100_000}"', "{", "\0"),
]
# As texts of JSON, since Python would not write all of them.
VALUES = st.sampled_from(ODD_VALUES) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["file", "page", "name"]), inner, max_size=2),
    max_leaves=5,
).map(json.dumps)


def write_line(record: Any, changes: dict[Key, str]) -> str:
    """The record with other values at some places."""
    holder = {"": copy.deepcopy(record)}
    for number, key in enumerate(changes):
        inner: Any = holder
        try:
            for name in ("", *key)[:-1]:
                inner = inner[name]
            inner[("", *key)[-1]] = f"<{number}>"
        except TypeError:  # what held this place was replaced as well
            continue
    line = json.dumps(holder[""])
    for number, value in enumerate(changes.values()):
        line = line.replace(f'"<{number}>"', value)
    return line


def draw_lines(record: Any, max_lines: int = 4) -> st.SearchStrategy[list[str]]:
    """Up to `max_lines` lines, each the record with other values at up to two places."""
    changes = st.dictionaries(st.sampled_from(list(list_keys(record))), VALUES, max_size=2)
    return st.lists(changes.map(lambda changed: write_line(record, changed)), min_size=1, max_size=max_lines)
