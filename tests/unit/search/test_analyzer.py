"""How text becomes terms, in every language of the configuration."""

from typing import get_args

import pytest
import Stemmer

from drag_ray.search.analyzer import MAX_TERM_BYTES, build_analyzer
from drag_ray.search.config import AnalyzerName

NAMES = get_args(AnalyzerName)
WORDS = {
    "danish": "forskellige bygningerne",
    "dutch": "verschillende gebouwen",
    "finnish": "rakennuksissa taloissa",
    "french": "continuellement bâtiments",
    "german": "aufeinanderfolgenden Gebäuden",
    "hungarian": "épületekben házakban",
    "italian": "abbandonata costruzioni",
    "norwegian": "forskjellige bygningene",
    "portuguese": "construções quilométricas",
    "romanian": "construcțiilor",
    "russian": "зданиями важнейшие",
    "spanish": "construcciones cheques",
    "swedish": "olika byggnaderna",
    "turkish": "binalar",
}


@pytest.mark.parametrize("name", NAMES)
def test_every_analyzer_cuts_words_at_their_places(name: str) -> None:
    text = "Rotor, BLADE (boom)\x00 2019 東京大学 Größe"
    analyzer = build_analyzer(name)
    tokens = analyzer.locate(text)
    assert [token.term for token in tokens] == analyzer.analyze(text)
    assert {text[token.start : token.end] for token in tokens} >= {"Rotor", "BLADE", "boom", "2019", "Größe"}
    assert [token.position for token in tokens] == sorted(token.position for token in tokens)


@pytest.mark.parametrize(("name", "words"), WORDS.items())
def test_stems_of_a_language_are_those_of_snowball(name: str, words: str) -> None:
    assert build_analyzer(name).analyze(words) == Stemmer.Stemmer(name).stemWords(words.lower().split())


def test_stop_words_go_and_leave_a_gap() -> None:
    assert [(token.term, token.position) for token in build_analyzer("english").locate("speed of the rotor")] == [
        ("speed", 0),
        ("rotor", 3),
    ]
    assert build_analyzer("plain").analyze("Speed of the Rotors") == ["speed", "of", "the", "rotors"]
    assert build_analyzer("german").analyze("die Größe und der Rotor") == ["gross", "rotor"]


def test_cjk_text_becomes_characters_and_pairs_in_turn() -> None:
    tokens = build_analyzer("cjk").locate("東京大 Rotor猫")
    assert [token.term for token in tokens] == ["東", "東京", "京", "京大", "大", "rotor", "猫"]
    assert [(token.start, token.end) for token in tokens] == [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (4, 9), (9, 10)]


def test_kana_and_hangul_are_cut_like_han() -> None:
    assert build_analyzer("cjk").analyze("テスト 한국") == ["テ", "テス", "ス", "スト", "ト", "한", "한국", "국"]


@pytest.mark.parametrize("name", ["english", "plain", "cjk"])
def test_very_long_words_are_dropped(name: str) -> None:
    assert build_analyzer(name).analyze("rotor " + "x" * MAX_TERM_BYTES + " " + "x" * (MAX_TERM_BYTES - 1)) == [
        "rotor",
        "x" * (MAX_TERM_BYTES - 1),
    ]


def test_what_is_handed_to_the_index_gives_the_same_terms() -> None:
    for name in NAMES:
        analyzer = build_analyzer(name)
        text = "The Rotors of 東京大学 CH-47"
        assert analyzer.text_analyzer.analyze(analyzer.prepare(text)) == analyzer.analyze(text)
