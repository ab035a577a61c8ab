from dataclasses import replace

from evaluation_cases import CONTEXT, build_comparison

from drag_ray.evaluate.report.parts import format_markdown


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
