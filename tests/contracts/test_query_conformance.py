"""The meaning of queries in each syntax.

A row is a query and the pages that it finds as a bag of words (or, and), and in the query language (or, and).
"""

from pathlib import Path

import pytest

from drag_ray import schemas
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
from drag_ray.storage import artifacts
from drag_ray.types import Page

PAGES = {
    "A": "The apache helicopter has a main rotor.",
    "B": "Maintenance of the tail rotor: check the oil.",
    "C": "Revenue in this section was high in 2019.",
    "D": "The maximum speed of the CH-47 is 170 knots.",
    "E": "Oil and fuel are filled through the left hatch.",
    "F": "Tail boom, tail rotors and an oil pump.",
    "G": "Beta-catenin and alpha-synuclein are proteins.",
    "H": "Größe der Rotoren, naïve café, 東京",
}

# fmt: off
QUERIES = [
    # query, words: or, and; query: or, and
    # words
    ("rotor", "ABF", "ABF", "ABF", "ABF"),
    ("ROTOR", "ABF", "ABF", "ABF", "ABF"),
    ("rotors", "ABF", "ABF", "ABF", "ABF"),
    ("rotoren", "H", "H", "H", "H"),
    ("rotor oil", "ABEF", "BF", "ABEF", "BF"),
    ("oil rotor", "ABEF", "BF", "ABEF", "BF"),
    ("helicopter oil", "ABEF", "", "ABEF", ""),
    ("missing", "", "", "", ""),
    ("rotor missing", "ABF", "", "ABF", ""),
    ("apache helicopter rotor", "ABF", "A", "ABF", "A"),
    ("2019", "C", "C", "C", "C"),
    ("170", "D", "D", "D", "D"),
    # stop words and nothing
    ("", "", "", "", ""),
    ("   ", "", "", "", ""),
    ("the", "", "", "", ""),
    ("the of and", "", "", "", ""),
    ("the rotor", "ABF", "ABF", "ABF", "ABF"),
    # questions
    ("What is the maximum speed of the CH-47?", "D", "", "D", ""),
    ("What is the maximum speed of the CH-47", "D", "", "D", ""),
    ("rotor?", "ABF", "ABF", "ABF", "ABF"),
    ("17?", "", "", "", ""),
    ("rotor's", "ABF", "", "ABF", ""),
    ("Section: revenue", "C", "C", "C", "C"),
    ("revenue -2019", "C", "C", "C", "C"),
    # words of several parts
    ("CH-47", "D", "D", "D", "D"),
    ("ch 47", "D", "D", "D", "D"),
    ("beta-catenin", "G", "G", "G", "G"),
    ("catenin-beta", "G", "G", "G", "G"),
    ("NOT beta-missing", "G", "", "ABCDEFGH", "ABCDEFGH"),
    ("beta-missing", "G", "", "G", ""),
    ("apache AND beta-rotor", "ABFG", "", "", ""),
    ("tail_rotor", "ABF", "BF", "ABF", "BF"),
    ("e.g. rotor", "ABF", "", "ABF", ""),
    ("http://tail.rotor/oil", "ABEF", "", "ABEF", ""),
    # phrases
    ('"tail rotor"', "ABF", "BF", "BF", "BF"),
    ('"rotor tail"', "ABF", "BF", "", ""),
    ('"tail rotors"', "ABF", "BF", "BF", "BF"),
    ('"main rotor" oil', "ABEF", "", "ABEF", ""),
    ('"tail" rotor', "ABF", "BF", "ABF", "BF"),
    ('"of the tail"', "BF", "BF", "BF", "BF"),
    ('"tail boom" "oil pump"', "BEF", "F", "F", "F"),
    ('"oil fuel"', "BEF", "E", "", ""),
    ('"oil and fuel"', "BEF", "E", "E", "E"),
    ('"oil the fuel"', "BEF", "E", "E", "E"),
    ('"tail oil"~3', "BEF", "", "", ""),
    ('"tail oil"~2', "BEF", "", "", ""),
    ('NOT "tail rotor"', "ABF", "BF", "ACDEGH", "ACDEGH"),
    ('rotor NOT "tail rotor"', "ABF", "BF", "A", "A"),
    ('""', "", "", "", ""),
    ('"the"', "", "", "", ""),
    ("'tail rotor'", "ABF", "BF", "ABF", "BF"),
    # operators
    ("apache AND rotor", "ABF", "A", "A", "A"),
    ("apache AND oil", "ABEF", "", "", ""),
    ("apache OR oil", "ABEF", "", "ABEF", "ABEF"),
    ("apache OR oil AND pump", "ABEF", "", "AF", "AF"),
    ("apache AND oil OR pump", "ABEF", "", "F", "F"),
    ("apache oil AND pump", "ABEF", "", "AF", ""),
    ("rotor AND oil AND boom", "ABEF", "F", "F", "F"),
    ("rotor NOT oil", "ABEF", "BF", "A", "A"),
    ("rotor AND NOT oil", "ABEF", "BF", "A", "A"),
    ("rotor OR NOT oil", "ABEF", "BF", "A", "A"),
    ("NOT rotor", "ABF", "ABF", "CDEGH", "CDEGH"),
    ("NOT apache NOT oil", "ABEF", "", "CDGH", "CDGH"),
    ("NOT missing", "", "", "ABCDEFGH", "ABCDEFGH"),
    ("NOT the", "", "", "", ""),
    ("NOT NOT rotor", "ABF", "ABF", "ABF", "ABF"),
    ("rotor ANDNOT oil", "ABEF", "", "ABEF", ""),
    ("oil ANDNOT rotor", "ABEF", "", "ABEF", ""),
    ("rotor ANDMAYBE oil", "ABEF", "", "ABEF", ""),
    ("rotor REQUIRE oil", "ABEF", "", "ABEF", ""),
    # operators in lower case are words
    ("apache and rotor", "ABF", "A", "ABF", "A"),
    ("apache or oil", "ABEF", "", "ABEF", ""),
    ("rotor not oil", "ABEF", "BF", "ABEF", "BF"),
    # operators without their words
    ("AND", "", "", "", ""),
    ("NOT", "", "", "", ""),
    ("AND OR NOT", "", "", "", ""),
    ("AND rotor", "ABF", "ABF", "ABF", "ABF"),
    ("rotor AND", "ABF", "ABF", "ABF", "ABF"),
    ("rotor OR", "ABF", "ABF", "ABF", "ABF"),
    ("rotor NOT", "ABF", "ABF", "ABF", "ABF"),
    ("rotor AND OR oil", "ABEF", "BF", "ABEF", "ABEF"),
    ("rotor AND AND oil", "ABEF", "BF", "BF", "BF"),
    ("the AND rotor", "ABF", "ABF", "ABF", "ABF"),
    ("rotor AND the", "ABF", "ABF", "ABF", "ABF"),
    ("the ANDNOT rotor", "ABF", "", "ABF", ""),
    # brackets
    ("(apache OR pump) AND rotor", "ABF", "", "AF", "AF"),
    ("apache OR (pump AND tail)", "ABF", "", "AF", "AF"),
    ("(rotor oil) NOT tail", "ABEF", "BF", "AE", ""),
    ("NOT (rotor OR oil)", "ABEF", "BF", "CDGH", "CDGH"),
    ("oil AND NOT (tail OR fuel)", "BEF", "", "", ""),
    ("(rotor (oil (tail)))", "ABEF", "BF", "ABEF", "BF"),
    ("((((rotor))))", "ABF", "ABF", "ABF", "ABF"),
    ("()", "", "", "", ""),
    ("(the)", "", "", "", ""),
    ("rotor ()", "ABF", "ABF", "ABF", "ABF"),
    # brackets and quotes without their partner
    ("apache AND (rotor", "ABF", "A", "A", "A"),
    ("apache) AND rotor", "ABF", "A", "A", "A"),
    ("rotor ) oil ( tail", "ABEF", "BF", "ABEF", "BF"),
    ("((", "", "", "", ""),
    ('"unbalanced', "", "", "", ""),
    ('"tail rotor', "ABF", "BF", "ABF", "BF"),
    ('tail rotor"', "ABF", "BF", "ABF", "BF"),
    ("'tail rotor", "ABF", "BF", "ABF", "BF"),
    ('"', "", "", "", ""),
    ("'", "", "", "", ""),
    ("[", "", "", "", ""),
    ("rotor}", "ABF", "ABF", "ABF", "ABF"),
    ("[a TO", "", "", "", ""),
    # wildcards
    ("maint*", "", "", "B", "B"),
    ("maintenanc*", "", "", "", ""),
    ("maintenance*", "B", "B", "B", "B"),
    ("rotors*", "ABF", "ABF", "ABF", "ABF"),
    ("rotor*", "ABF", "ABF", "ABFH", "ABFH"),
    ("*tor", "", "", "ABF", "ABF"),
    ("*oto*", "", "", "ABFH", "ABFH"),
    ("r?tor", "", "", "ABF", "ABF"),
    ("ro??r", "", "", "ABF", "ABF"),
    ("rot?r oil", "BEF", "", "ABEF", "BF"),
    ("m*n*ce", "", "", "", ""),
    ("tail ro*", "BF", "", "ABFH", "BF"),
    ("NOT ro*", "", "", "CDEG", "CDEG"),
    ("(ro* OR boom) NOT tail", "BF", "", "AH", "AH"),
    ("[ar]*", "", "", "", ""),
    # wildcards alone or too many
    ("*", "", "", "", ""),
    ("?", "", "", "", ""),
    ("**", "", "", "", ""),
    ("* rotor", "ABF", "ABF", "ABF", "ABF"),
    ("NOT *", "", "", "", ""),
    ("*:*", "", "", "", ""),
    ("a*e*i*o*u*x", "", "", "", ""),
    ("*r?????????????????", "", "", "ABFH", "ABFH"),
    # ranges and weights
    ("[a TO c]", "", "", "", ""),
    ("{boom TO fuel}", "EF", "", "EF", ""),
    ("[2000 TO 2020]", "", "", "", ""),
    ("rotor TO oil", "ABEF", "BF", "ABEF", "BF"),
    ("rotor^2 oil", "ABEF", "", "ABEF", ""),
    ("rotor^", "ABF", "ABF", "ABF", "ABF"),
    ("^2", "", "", "", ""),
    ("rotor~1", "ABF", "", "ABF", ""),
    ("(rotor ANDMAYBE oil)^2", "ABEF", "", "ABEF", ""),
    ("(rotor ANDNOT oil)^2", "ABEF", "", "ABEF", ""),
    ("(rotor REQUIRE oil)^2 tail", "ABEF", "", "ABEF", ""),
    ("(NOT oil)^2 rotor", "ABEF", "", "ABCDFGH", ""),
    # other fields
    ("file:A", "", "", "", ""),
    ("file:rotor", "ABF", "", "ABF", ""),
    ("text:rotor", "ABF", "", "ABF", ""),
    ("row:0", "", "", "", ""),
    ("page_number:1", "", "", "", ""),
    ("foo:rotor", "ABF", "", "ABF", ""),
    ("text:*", "", "", "", ""),
    # other people's syntax
    ("+rotor +oil", "ABEF", "BF", "ABEF", "BF"),
    ("-rotor", "ABF", "ABF", "ABF", "ABF"),
    ("!rotor", "ABF", "ABF", "ABF", "ABF"),
    ("rotor && oil", "ABEF", "BF", "ABEF", "BF"),
    ("rotor || oil", "ABEF", "BF", "ABEF", "BF"),
    ("rotor,oil", "ABEF", "BF", "ABEF", "BF"),
    ("a,b;c", "", "", "", ""),
    ("rotor/oil", "ABEF", "BF", "ABEF", "BF"),
    ("\\(rotor\\)", "ABF", "ABF", "ABF", "ABF"),
    ("<search>rotor</search>", "ABF", "", "ABF", ""),
    ('{"query": "rotor"}', "ABF", "", "ABF", ""),
    ("SELECT * FROM pages", "", "", "", ""),
    # characters
    ("rotor\noil", "ABEF", "BF", "ABEF", "BF"),
    ("rotor\toil", "ABEF", "BF", "ABEF", "BF"),
    ("\x00rotor\x00", "ABF", "ABF", "ABF", "ABF"),
    ("rotor\x00oil", "ABEF", "BF", "ABEF", "BF"),
    ("\u200brotor", "ABF", "ABF", "ABF", "ABF"),
    ("\ud800", "", "", "", ""),
    ("rotor\ud800", "ABF", "ABF", "ABF", "ABF"),
    ("😀", "", "", "", ""),
    ("rotor 😀", "ABF", "ABF", "ABF", "ABF"),
    ("Größe", "H", "H", "H", "H"),
    ("grosse", "", "", "", ""),
    ("naïve café", "H", "H", "H", "H"),
    ("東京", "H", "H", "H", "H"),
    ("東", "", "", "", ""),
    # length and depth
    ("x" * 5000, "", "", "", ""),
    ("rotor " + "x" * 4000, "ABF", "ABF", "ABF", "ABF"),
    ("rotor " * 1000, "ABF", "ABF", "ABF", "ABF"),
    ("oil " * 600 + "apache", "BEF", "BEF", "BEF", "BEF"),
    ("(" * 3000 + "rotor", "", "", "", ""),
    ("rotor" + "(" * 3000, "ABF", "ABF", "ABF", "ABF"),
    ("(" * 900 + "rotor" + ")" * 900, "ABF", "ABF", "ABF", "ABF"),
    ("NOT " * 400 + "rotor", "ABF", "ABF", "ABF", "ABF"),
    ("rotor " + "AND rotor " * 150, "ABF", "ABF", "ABF", "ABF"),
]
# fmt: on


class Engines:
    """One small collection behind every syntax."""

    def __init__(self, folder: Path) -> None:
        pages = [Page(name, 1, 1, text) for name, text in PAGES.items()]
        artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
        build_index(folder / "pages.parquet", folder / "english", SearchConfig())
        self.ours = [
            Searcher(folder / "english", operator, syntax) for syntax in ("words", "query") for operator in ("or", "and")
        ]

    def find(self, query: str) -> list[str]:
        return [_join(hit.file for hit in searcher.search(query, len(PAGES))) for searcher in self.ours]


def _join(names) -> str:
    return "".join(sorted(names))


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Engines:
    return Engines(tmp_path_factory.mktemp("conformance"))


@pytest.mark.parametrize("row", QUERIES, ids=lambda row: ascii(row[0])[:40])
def test_a_query_finds_what_the_table_says(engines: Engines, row: tuple[str, ...]) -> None:
    assert engines.find(row[0]) == list(row[1:])
