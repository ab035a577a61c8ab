from dataclasses import replace

from evaluation_cases import CONTEXT, build_comparison, build_searching

from drag_ray.evaluate.report.parts import build_parts, format_console, format_markdown


def test_the_table_is_aligned_and_qualified():
    text = format_console(build_parts(build_comparison({"base": [1, None], "a longer name": [2, 3]}), CONTEXT))
    assert text.startswith("TEST questions")
    header, rule, first_row = text.split("\n\n")[1].splitlines()[:3]
    column = header.index("base")
    assert rule[column - 1] == " "
    assert first_row[column:].startswith("50.0 [")
    assert first_row[header.index("a longer name") :].startswith("100.0 [")
    said = text.replace("\n", " ")
    for words in ("N = 2 questions (test)", "top_k = 3", "depth = 10", "operator or", "analyzer en_stem", "sampling greedy"):
        assert words in said
    assert "seeds 0" in said
    assert "No significant difference between a longer name and base" in said


def test_conditional_measures_show_their_size():
    text = format_console(build_parts(build_comparison({"base": [1, None], "tuned": [2, 3]}), CONTEXT))
    [row] = [line for line in text.splitlines() if line.startswith("Iterations to success") and "n=" in line]
    assert "1.00 [1.00..1.00] n=1" in row


def test_success_by_turn_is_shown_for_who_searches_again():
    sections = format_console(build_parts(build_searching(), CONTEXT)).split("\n\n")
    [table] = [section.splitlines() for section in sections if section.startswith("success within turn")]
    assert " ".join(table[0].split()) == (
        "success within turn pages % first search, as many pages % the question, as many pages % % - the question"
    )
    assert table[2].split()[:6] == ["base", "1", "3.00", "33.3", "33.3", "33.3"]
    assert table[3].split()[:6] == ["base", "2", "5.00", "66.7", "33.3", "66.7"]


def test_the_room_stands_in_a_table_with_the_best_policy_of_each_measure():
    text = format_console(build_parts(build_comparison({"base": [1, None, 4], "tuned": [None, 2, 4]}), CONTEXT))
    [table] = [section.splitlines() for section in text.split("\n\n") if section.startswith("first search")]
    assert table[2].split() == ["Hit@1", "%", "base", "33.3", "33.3", "0.0"]
    assert table[-1].split() == ["MRR", "base", "0.417", "0.583", "0.167"]


def test_the_verdict_comes_first_and_every_table_is_rectangular():
    text = format_markdown(build_comparison({"base": [1, None, 4], "tuned": [2, 3, None]}), CONTEXT)
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings[:3] == [f"# {CONTEXT.title}", "## Verdict", "## Questions"]
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 5  # measures, differences, tests, effort, room
    assert all(len({line.count("|") for line in table}) == 1 for table in tables)


def test_names_of_policies_cannot_break_a_table():
    text = format_markdown(build_comparison({"base": [1, None], "a|b*": [2, 3]}), CONTEXT)
    assert "| measure | base | a\\|b\\* |" in text


def test_names_fetch_nothing_and_are_no_markup():
    beacon, page = "![x](http://beacon/a.png)", "<img src=http://beacon/b.png>\n# head [a]: http://beacon [b][a]"
    text = format_markdown(build_comparison({"base": [1, None], beacon: [2, 3]}), replace(CONTEXT, title=beacon + page))
    title = r"\![x]\(http://beacon/a.png)\<img src=http://beacon/b.png> # head [a]\: http://beacon [b]\[a]"
    assert text.splitlines()[0] == f"# {title}"
    assert r"| measure | base | \![x]\(http://beacon/a.png) |" in text
    assert "![" not in text.replace(r"\![", "")
    assert "](" not in text
    assert not [line for line in text.splitlines() if line.startswith("# head")]
