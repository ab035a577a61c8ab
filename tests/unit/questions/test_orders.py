"""The questions that are to be written, and the pages that are linked for those over two."""

from time import process_time

from drag_ray.questions.links import find_walks, link_pages, plan_orders
from drag_ray.questions.pages import PageText
from drag_ray.types import Evidence

WORDS = "the pump of the left wing is replaced after two hundred hours of flight by a mechanic who has been trained for it"


def page(text: str, file: str = "a.pdf", number: int = 1, *links: str) -> PageText:
    return PageText(Evidence(file, number), text, links=links)


def test_kinds_take_turns_over_the_pages_and_a_page_is_asked_again_with_another_kind() -> None:
    pages = [page(WORDS, "a", 1), page(WORDS, "b", 1)]
    planned = plan_orders(pages, ("fact", "procedure", "user"), 5)
    assert [(order.pages[0].place.file, order.kind) for order in planned] == [
        *(("a", "fact"), ("b", "procedure"), ("a", "procedure"), ("b", "user"), ("a", "user")),
    ]
    assert len({order.id for order in planned}) == 5
    assert len(plan_orders(pages, ("fact", "procedure", "user"), 50)) == 6
    assert [order.kind for order in plan_orders(pages, ("fact",), 0)] == ["fact", "fact"]


def test_pages_are_linked_by_the_rarest_words_that_they_share_within_a_file_or_across_files() -> None:
    pages = [
        page("Flight crews of Kestrel tell what the gyrocompass shows in the cockpit at dawn", "a", 1),
        page("Flight tables of Merlin name the altimeter, and days when nobody flew", "a", 2),
        page("Every gyrocompass is mended by Osprey, whose flight school moved to Lund", "b", 1),
        page("Some altimeter readings of Falcon were wrong in winter, says its flight log", "b", 2),
        *(page(f"flight number {number} of the year", f"more{number}") for number in range(10)),
    ]
    across = link_pages(pages, within_file=False)
    assert across[Evidence("a", 1)] == [(pages[2], ("gyrocompass",))]
    assert across[Evidence("b", 2)][0].page == pages[1]
    within = link_pages(pages, within_file=True)
    assert Evidence("a", 1) not in within, "`flight` stands on too many pages, and links none"
    both = [*pages, page("The Kestrel and its gyrocompass were sold in spring, after some talk", "a", 3)]
    assert link_pages(both, within_file=True)[Evidence("a", 1)][0].labels == ("kestrel", "gyrocompass")


def test_pages_that_say_the_same_are_not_linked() -> None:
    assert not link_pages([page(WORDS, "a"), page(f"{WORDS} again", "b")], within_file=False)


def test_a_kind_of_two_pages_is_asked_of_those_that_are_linked() -> None:
    pages = [
        page("A new gyrocompass was bought last year", "a"),
        page("No gyrocompass is kept in store today", "b"),
        page(WORDS, "c"),
    ]
    planned = plan_orders(pages, ("comparison", "pages"), 0)
    assert [order.kind for order in planned] == ["comparison"]
    [order] = plan_orders(pages, ("comparison",), 1)
    assert (order.pages, order.links) == (tuple(pages[:2]), (("gyrocompass",),))
    assert [len(order.pages) for order in plan_orders(pages, ("fact", "documents"), 10)] == [1, 2, 1, 1], "both ways is the same"


def test_a_page_that_names_a_document_is_linked_to_its_first_page_unless_the_name_is_shared_or_on_many_pages() -> None:
    pages = [
        page("Crews read the Kestrel-Handbook before winter comes", "notes/crew.md"),
        page("Fuel gets measured each morning, whatever falls", "manuals/kestrel_handbook.md"),
        page("Nothing more", "manuals/kestrel_handbook.md", 2),
        page("Merlin days\nHow somebody learned to land between two hills, told by himself", "diary.md"),
        page("See README first, common list and the Merlin Days of another author", "links.txt"),
        *(page(f"Entry {number}", f"{number}/README-first.md") for number in range(2)),
        page("A list", "common-list.md"),
        page("见《风筝手册》", "说明.md"),
        page("每天早上量油", "风筝手册.md"),
        *(page(f"The common list, says {number}", f"more{number}") for number in range(10)),
        *(page(f"Kestrel Handbook, {number}", "manuals/kestrel_handbook.md", number) for number in range(3, 14)),
    ]
    graph = link_pages(pages, within_file=False)
    assert graph[pages[0].place] == [(pages[1], ("kestrel handbook",))]
    assert graph[pages[1].place] == [(pages[0], ("kestrel handbook",))]
    assert (graph[pages[3].place][0].page, graph[pages[3].place][0].labels[0]) == (pages[4], "merlin days")
    assert pages[5].place not in graph, "two documents have that name"
    assert pages[7].place not in graph, "eleven pages have that name"
    assert graph[pages[8].place] == [(pages[9], ("风 筝 手 册",))]
    assert not link_pages(pages[:2], within_file=True)


def test_a_walk_goes_on_by_what_its_first_page_does_not_have_and_comes_to_no_document_twice() -> None:
    pages = [
        page("Kestrel carries a gyrocompass made by Osprey, painted blue", "a"),
        page("Osprey mends every gyrocompass, and has its hall in Lund since spring", "b"),
        page("Osprey badge with gyrocompass pictures, sold for luck", "d"),
        page("Nobody from Lund ever flew here", "a", 2),
        page("Lund closes its airfield in December for snow", "c"),
    ]
    graph = link_pages(pages, within_file=False)
    [walk] = find_walks(graph, pages[0], 2)
    assert [(link.page, link.labels) for link in walk] == [(pages[1], ("gyrocompass", "osprey")), (pages[4], ("lund",))]
    assert not list(find_walks(graph, pages[0], 3))
    [order] = plan_orders(pages, ("path",), 1)
    assert (order.pages, order.links) == ((pages[0], pages[1], pages[4]), (("gyrocompass", "osprey"), ("lund",)))


def test_a_title_on_a_cover_that_is_not_asked_about_links_the_next_page_and_a_short_page_is_linked_too() -> None:
    cover, crew = page("Kestrel Handbook", "b.pdf"), page("Crews read the Kestrel Handbook before winter comes", "a.pdf")
    first = page("Fuel gets measured each morning, whatever falls", "b.pdf", 2)
    assert link_pages([first, crew], False, [cover])[crew.place] == [(first, ("kestrel handbook",))]
    assert link_pages([cover, crew], False)[crew.place][0].labels[0] == "kestrel handbook"


def test_a_name_has_two_words_and_four_letters() -> None:
    pages = [
        page("Notes of 3m 2018 10k, and no more data", "a.md"),
        page("Fuel falls", "notes.md"),
        page("Wind", "3m 2018 10k.md"),
    ]
    assert not link_pages(pages, within_file=False)


def test_a_page_that_names_all_others_is_on_the_way_from_few_of_them() -> None:
    entries = [
        page(f"Kind{number} of make{number}: oil{number}, wood{number // 2}", f"entry-no{number}.md") for number in range(40)
    ]
    contents = page(" ".join(f"entry no{number}," for number in range(40)), "contents.md")
    graph = link_pages([*entries, contents], within_file=False)
    assert sum(links[0].page == contents for links in graph.values()) == 10
    assert len(graph[contents.place]) == 5
    assert graph[entries[-1].place] == [(entries[-2], ("wood19",))]


def test_a_walk_does_not_go_on_to_a_page_that_its_first_page_leads_to_among_many() -> None:
    """Of its seven hyperlinks five are in the graph."""
    others = [page(f"Kind{number} of make{number}", f"{name}.md") for number, name in enumerate("bcdefgh")]
    first = page("Where all begins", "a.md", 1, *(f"{name}.md" for name in "bcdefg"), "h.md#page=1")
    others[0] = page("What follows", "b.md", 1, "h.md", "i.md")
    graph = link_pages([first, *others, page("The end", "i.md")], within_file=False)
    assert len(graph[first.place]) == 5
    assert {walk[1].page.place.file for walk in find_walks(graph, first, 2)} == {"i.md"}


def test_another_walk_is_taken_where_its_pages_are_asked_about_already() -> None:
    pages = [
        page("Osprey mends each gyrocompass here", "a"),
        page("Osprey sold one gyrocompass today, beside Lund", "b"),
        page("Nobody came from Lund until now", "c"),
    ]
    planned = plan_orders(pages, ("documents",), 3)
    assert [[one.place.file for one in order.pages] for order in planned] == [["a", "b"], ["b", "c"]]


def test_many_names_that_begin_alike_are_looked_up_at_once() -> None:
    pages = [page(f"The x{number} entry\n{'the old engine ' * 60}", f"{number}.md") for number in range(1000)]
    begun = process_time()
    link_pages([*pages, page("See the x7 entry", "a.md")], within_file=False)
    assert process_time() - begun < 5


def test_a_hyperlink_leads_to_a_page_before_any_words_and_one_way() -> None:
    pages = [
        page("Kestrel crews polish gyrocompass housings weekly", "notes/crew.md", 1, "../manuals/fuel%20system.md#pumps"),
        page("Nobody weighs barrels twice", "manuals/fuel system.md"),
        page("Kestrel people sell gyrocompass badges today", "shop.md", 1, "https://fly.example/docs/manuals/limits.pdf#page=2"),
        page("Barometer needles shake", "manuals/limits.pdf", 1, "#page=3", "limits.pdf", "limits.pdf#page=2"),
        page("Altitude stays below seven miles", "manuals/limits.pdf", 2),
        page("Colours fade", "manuals/limits.pdf", 3, "#page=9"),
    ]
    graph = link_pages(pages, within_file=False)
    assert [(link.page, link.labels) for link in graph[pages[0].place]] == [
        (pages[1], ("hyperlink: manuals/fuel system.md",)),
        (pages[2], ("gyrocompass", "kestrel")),
    ]
    assert pages[1].place not in graph
    assert graph[pages[2].place][0] == (pages[4], ("hyperlink: manuals/limits.pdf#page=2",))
    assert pages[3].place not in graph
    assert not link_pages(pages, within_file=True), "within a document hyperlinks are of its contents and notes"


def test_links_to_nowhere_or_to_itself_and_those_of_a_menu_link_nothing() -> None:
    addresses = (
        "",
        "#",
        "a.md",
        "./a.md",
        "#top",
        "gone.md",
        "../../b.md",
        "//[",
        "http://[x",
        "%ff%00",
        "..",
        "b.md#page=7",
        "?q",
    )
    pages = [page("Winds rise", "a.md", 1, *addresses, "https://other.example/index.html"), page("Rain falls", "b.md")]
    assert not link_pages([*pages, page("Start here", "index.html")], within_file=False)
    menu = [page(f"Entry{number} of{number}", f"{number}.md", 1, "b.md") for number in range(11)]
    assert not link_pages([*menu, pages[1]], within_file=False)
    assert len(link_pages([*menu[:10], pages[1]], within_file=False)) == 10


def test_a_walk_does_not_go_on_by_a_hyperlink_that_its_first_page_has_too() -> None:
    def plan(*links: str) -> list[list[str]]:
        pages = [page("Winds rise", "a", 1, "b", *links), page("Rain falls", "b", 1, "c"), page("Snow lies", "c")]
        return [[one.place.file for one in order.pages] for order in plan_orders(pages, ("path",), 0)]

    assert plan() == [["a", "b", "c"]]
    assert plan("c") == []


def test_tables_and_figures_are_asked_about_where_the_page_has_them() -> None:
    table = page("| plane | seats |\n|---|---|\n| Kestrel | 4 |", "table")
    pictured = PageText(Evidence("picture", 1), WORDS, "a.jpg")
    planned = plan_orders([table, pictured, page(WORDS)], ("table", "figure"), 9)
    assert [(order.pages[0].place.file, order.kind) for order in planned] == [("table", "table"), ("picture", "figure")]


def test_each_question_is_drafted_as_often_as_samples_are_asked_for() -> None:
    planned = plan_orders([page(WORDS, "a"), page(WORDS, "b")], ("fact",), 5, samples=3)
    assert [order.pages[0].place.file for order in planned] == ["a", "a", "a", "b", "b"]
    assert len({order.id for order in planned}) == 5
    [single] = plan_orders([page(WORDS, "a")], ("fact",), 1)
    assert single == planned[0]


def test_a_kind_that_is_named_twice_is_asked_once_of_a_page() -> None:
    pages = [page(WORDS, name) for name in "abcd"]
    planned = plan_orders(pages, ("fact", "fact", "user"), 100)
    asked = [(order.pages[0].place.file, order.kind) for order in planned]
    assert sorted(asked) == [(name, kind) for name in "abcd" for kind in ("fact", "user")]
    assert len({order.id for order in planned}) == len(planned)
