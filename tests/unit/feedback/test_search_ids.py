"""Search ids: what they say, and that nobody else can make or change one."""

import base64

import pytest

from drag_ray.feedback.search_ids import MAX_ID_CHARS, MAX_PAGES, SearchIds
from drag_ray.types import Evidence

PAGES = [Evidence("a.pdf", number) for number in range(1, 4)]
IDS = SearchIds(b"s" * 32)
NOW = 1_790_000_000


def test_an_id_says_when_it_was_issued_and_at_which_rank_each_page_was_shown() -> None:
    search_id = IDS.issue(PAGES, NOW)
    found = SearchIds(b"s" * 32).read(search_id)
    assert found
    assert (found.time, found.short) == (NOW, search_id[:12])
    assert [found.find_rank(page) for page in PAGES] == [1, 2, 3]
    assert found.find_rank(Evidence("a.pdf", 4)) == found.find_rank(Evidence("b.pdf", 1)) == 0


def test_no_id_is_taken_that_was_changed_or_made_by_others() -> None:
    search_id = IDS.issue(PAGES, NOW)
    data = base64.urlsafe_b64decode(search_id + "=" * (-len(search_id) % 4))
    changed = [
        base64.urlsafe_b64encode(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]) for place in range(len(data))
    ]
    shortened = base64.urlsafe_b64encode(data[:17] + data[-16:])
    others = SearchIds(b"t" * 32).issue(PAGES, NOW)
    for text in (
        *(one.decode().rstrip("=") for one in (*changed, shortened)),
        others,
        "",
        "a",
        "ä" * 20,
        "=" * 8,
        search_id[:-4],
    ):
        assert IDS.read(text) is None


def test_an_id_is_of_who_may_see_the_same_documents() -> None:
    audiences = (None, [], ["a", "b"], ["a"], ["b"])
    for groups in audiences:
        search_id = IDS.issue(PAGES, NOW, groups=groups)
        assert [other for other in audiences if IDS.read(search_id, other)] == [groups]
    assert IDS.read(IDS.issue(PAGES, NOW, groups=["a", "b"]), frozenset(("b", "a")))


def test_equal_searches_have_different_ids_and_pages_of_one_are_none_of_another() -> None:
    first, second = IDS.issue(PAGES, NOW), IDS.issue(PAGES, NOW)
    assert first[:12] != second[:12]
    digests = [base64.urlsafe_b64decode(name + "=" * (-len(name) % 4))[13:25] for name in (first, second)]
    assert digests[0] != digests[1]


def test_the_longest_id_fits() -> None:
    search_id = IDS.issue([Evidence("a.pdf", number) for number in range(1, 2 * MAX_PAGES)], NOW)
    found = IDS.read(search_id)
    assert len(search_id) <= MAX_ID_CHARS
    assert found
    assert [found.find_rank(Evidence("a.pdf", number)) for number in (MAX_PAGES, MAX_PAGES + 1)] == [MAX_PAGES, 0]


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::9", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("testclient", "testclient", True),
    ],
)
def test_a_client_has_one_pseudonym_for_all_addresses_that_it_can_choose(first: str, second: str, is_same: bool) -> None:
    names = [IDS.name_client(address) for address in (first, second)]
    assert (names[0] == names[1]) is is_same
    assert first not in names[0]
    assert SearchIds(b"t" * 32).name_client(first) != names[0]
