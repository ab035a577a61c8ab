from evaluation_cases import CONTEXT, build_comparison

from drag_ray.evaluate.console import format_console


def test_the_table_is_aligned_and_qualified():
    text = format_console(build_comparison({"base": [1, None], "a longer name": [2, 3]}), CONTEXT)
    header, rule, first_row = text.splitlines()[:3]
    column = header.index("base")
    assert rule[column - 1] == " "
    assert first_row[column:].startswith("50.0 [")
    assert first_row[header.index("a longer name") :].startswith("100.0 [")
    for words in ("N = 2 questions", "top_k = 3", "depth = 10", "operator or", "analyzer en_stem", "sampling greedy", "seeds 0"):
        assert words in text.replace("\n", " ")
    assert "a longer name does not beat base" in text


def test_conditional_measures_show_their_size():
    text = format_console(build_comparison({"base": [1, None], "tuned": [2, 3]}), CONTEXT)
    [row] = [line for line in text.splitlines() if line.startswith("MRR over first hits") and "n=" in line]
    assert "1.000 [1.000..1.000] n=1" in row
