"""The order of pages, which covers files and topics, by made-up topics of words of their own."""

import random
from collections import Counter
from functools import partial
from heapq import heappop, heappush, heapreplace
from typing import Any

import pytest

from drag_ray.questions import coverage
from drag_ray.questions.coverage import draw_pages, group_pages, spread_pages
from drag_ray.questions.pages import PageText
from drag_ray.types import Evidence


def write_page(file: str, number: int, topic: int) -> PageText:
    """A page of forty words, half of them of its topic."""
    drawn = random.Random(f"{file} {number}")
    words = [f"{kind}{drawn.randrange(30)}" for _ in range(20) for kind in (f"topic{topic}x", "common")]
    return PageText(Evidence(file, number), " ".join(words))


def spread(pages: list[PageText], num_topics: int, seed: int = 0) -> list[PageText]:
    drawn = draw_pages(pages, seed)
    return spread_pages(drawn, group_pages(drawn, num_topics, seed))


def test_a_long_document_is_asked_about_no_more_than_a_short_one_until_that_has_no_more_pages() -> None:
    pages = [write_page("long", number, 0) for number in range(1, 101)]
    pages += [write_page("short", 1, 0), write_page("middle", 1, 0)]
    found = spread(pages, 1)
    assert {page.place.file for page in found[:3]} == {"long", "short", "middle"}
    assert set(found) == set(pages)
    assert len(found) == len(pages)
    assert found == spread(pages[::-1], 1)
    assert found != spread(pages, 1, seed=1)


def test_a_topic_of_nine_tenths_of_the_pages_and_a_file_of_many_topics_leave_room_for_every_topic_and_file() -> None:
    """45 files of 20 pages each about one thing, and a manual of 100 pages about ten others."""
    topics = {Evidence(f"{file}.pdf", number): 0 for file in range(45) for number in range(1, 21)}
    topics |= {Evidence("manual.pdf", number): 1 + number % 10 for number in range(1, 101)}
    pages = [write_page(place.file, place.page_number, topic) for place, topic in topics.items()]
    found = spread(pages, 11)
    asked = found[:60]
    of_manual = [topics[page.place] for page in asked if page.place.file == "manual.pdf"]
    assert set(of_manual) == set(range(1, 11)), "as many as ten of one document, because it has ten topics"
    assert len(of_manual) < 20
    assert len({page.place.file for page in asked}) == 46
    assert found == spread(pages, 11)
    by_file = spread(pages, 1)[:60]
    assert len({topics[page.place] for page in by_file}) < 5, "over files alone most topics are left out"


def test_of_one_file_all_topics_have_as_many_pages() -> None:
    topics = {number: 0 if number <= 180 else 1 + number % 2 for number in range(1, 221)}
    asked = spread([write_page("a.pdf", number, topic) for number, topic in topics.items()], 3)[:30]
    assert Counter(topics[page.place.page_number] for page in asked) == {0: 10, 1: 10, 2: 10}


def test_pages_that_say_the_same_but_for_numbers_come_after_all_others() -> None:
    form = (
        "Form {} of the year {}: the holder of this form has paid all dues of the club and may use its halls until the end of it"
    )
    forms = [PageText(Evidence(f"form{number}.pdf", 1), form.format(number, 1900 + number)) for number in range(50)]
    short = [PageText(Evidence(f"short{number}.pdf", 1), "a few words") for number in range(5)]
    pages = [*forms, *short, *(write_page(f"{number}.pdf", 1, number % 5) for number in range(50))]
    found = spread(pages, 5)
    assert sum(page in forms for page in found[:56]) == 1
    assert all(page in forms for page in found[56:])


def test_pages_that_are_not_learned_from_join_the_topics_and_few_pages_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "_MAX_LEARNED", 60)
    pages = draw_pages([write_page(f"{number}.pdf", 1, number % 3) for number in range(600)], 0)
    found = group_pages(pages, 3, 0)
    pairs = Counter((int(page.place.file[:-4]) % 3, found[page.place]) for page in pages)
    assert sorted(pairs.values()) == [200, 200, 200]
    assert set(group_pages(pages[:19], 3, 0).values()) == {0}
    assert len(set(group_pages(pages[:20], 3, 0).values())) == 2
    blank = [PageText(page.place, "") for page in pages]
    assert set(group_pages(blank, 3, 0).values()) == {0}
    assert set(spread_pages(blank, group_pages(blank, 3, 0))) == set(blank)


def test_the_order_of_many_pages_takes_no_more_steps_than_pages_and_topics_make(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Counter[str]()

    def count(called: Any, *arguments: Any) -> Any:
        steps[called.__name__] += 1
        return called(*arguments)

    for called in (heapreplace, heappush, heappop):
        monkeypatch.setattr(coverage, called.__name__, partial(count, called))
    pages = [PageText(Evidence(f"{number % 2000}.pdf", number), f"page {number}") for number in range(20_000)]
    topics = {page.place: 0 if number % 10 else number % 7 for number, page in enumerate(pages)}
    found = spread_pages(pages, topics)
    assert len(set(found)) == 20_000
    assert steps.total() < 4 * 20_000


def test_of_more_pages_than_are_learned_from_there_are_no_more_topics_than_of_these(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "_MAX_LEARNED", 60)
    pages = [write_page("a.pdf", number, number % 40) for number in range(1, 401)]
    topics = group_pages(draw_pages(pages, 0), 1_000, 0)
    assert topics.keys() == {page.place for page in pages}
    assert len(set(topics.values())) == 6
