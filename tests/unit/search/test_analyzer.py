"""Words of texts, and the one form of texts that look the same."""

import time
import unicodedata
from typing import get_args

import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from drag_ray.search.analyzer import MAX_TERM_BYTES, build_analyzer
from drag_ray.search.config import AnalyzerName
from drag_ray.search.normal_form import align, normalise

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


def test_cjk_kana_and_hangul_become_characters_and_pairs_in_turn() -> None:
    tokens = build_analyzer("cjk").locate("東京大 Rotor猫")
    assert [token.term for token in tokens] == ["東", "東京", "京", "京大", "大", "rotor", "猫"]
    assert [(token.start, token.end) for token in tokens] == [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (4, 9), (9, 10)]
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


# ruff: noqa: RUF001


# What a keyboard writes for each, or the letters that are seen.
FORMS = {
    "Zu\u0308rich": "Zürich",
    "ＡＢＣ１２３": "ABC123",
    "o\ufb03ce": "office",
    "super\u00adin\u200btend\u2060ent\ufeff": "superintendent",
    "\u202aabc\u202c\u200e": "abc",
    "می\u200cخواهم": "میخواهم",
    "क्\u200dष": "क्ष",
    "ｶﾞｲﾄﾞ": "ガイド",
    "\u1112\u1161\u11ab\u3131": "한\u1100",
    "\ufefb": "لا",
    "\u2168 \u2160\u2164": "IX IV",
    "10⁶": "10^6",
    "10⁻¹²": "10\u2212^12",
    "cm² m³/s": "cm^2 m^3/s",
    "¹⁴C": "^14 C",
    "Rotor¹": "Rotor^1",
    "H₂O x₁₂": "H2O x12",
    "10₂ log₂8": "10 2 log2 8",
    "1½": "1 1/2",
    "1\u200b½": "1 1/2",
    "5㎏ 3㎡ 20℃ 90㎞/h": "5 kg 3 m^2 20°C 90 km/h",
    "①②Rotor": "1  2 Rotor",
    "Word™": "Word TM",
    "2019\u3000年㍻": "2019 年 平成",
    "ไทย\u200bกิน": "ไทย กิน",
}


@pytest.mark.parametrize(("text", "form"), FORMS.items())
def test_what_looks_the_same_has_one_form(text: str, form: str) -> None:
    assert normalise(text) == form
    assert normalise(unicodedata.normalize("NFD", text)) == form


LETTERS = st.text(
    st.sampled_from("aZuß9 \u0308\u0301\u0323\u00ad\u200b\u3164ｶﾞﾊﾟ⁶²₂½㎡①™\ufb03\u1100\u1161\u11a8ㅎㅏ각क्ष\u093fำ\ufdfaéﬁ⁄")
    | st.characters(),
    max_size=40,
)


@given(LETTERS)
def test_the_places_are_of_the_same_form_and_in_order(text: str) -> None:
    aligned = align(text)
    assert aligned.text == normalise(text)
    assert len(aligned.starts) == len(aligned.ends) == len(aligned.text)
    assert aligned.starts == sorted(aligned.starts)
    assert aligned.ends == sorted(aligned.ends)
    assert all(0 <= start < end <= len(text) for start, end in zip(aligned.starts, aligned.ends, strict=True))


@given(LETTERS)
def test_texts_have_one_form_which_is_its_own(text: str) -> None:
    assert normalise(unicodedata.normalize("NFD", text)) == normalise(unicodedata.normalize("NFC", text))
    assert normalise(normalise(text)) == normalise(text)


def test_a_character_comes_from_its_own_place() -> None:
    text = "1½ o\ufb03ce Zu\u0308r\u00adich 10⁶"
    aligned = align(text)
    assert aligned.text == "1 1/2 office Zürich 10^6"
    origins = [text[start:end] for start, end in zip(aligned.starts, aligned.ends, strict=True)]
    assert origins[:6] == ["1", "½", "½", "½", "½", " "]
    assert origins[6:13] == ["o", "\ufb03", "\ufb03", "\ufb03", "c", "e", " "]
    assert origins[13:20] == ["Z", "u\u0308", "r", "i", "c", "h", " "]
    assert origins[20:] == ["1", "0", "⁶", "⁶"]


@pytest.mark.parametrize(
    "unit",
    [
        "\u0301",
        "\u0301" * 30 + "\uff9e",
        "\u0301" * 30 + "\u3164",
        "\u0301" * 31 + "a",
        "\ufdfa",
        "10⁶½",
        "\u00ad",
        "e\u0301",
        "\u2500",
    ],
)
def test_hostile_text_takes_time_and_space_in_proportion(unit: str) -> None:
    """Normalisation alone sorts so many marks in a row for twenty seconds."""
    text = "a" + unit * (40_000 // len(unit)) + "\u0316" * 40_000
    started = time.process_time()
    assert len(normalise(text)) <= 18 * len(text)
    assert align(text).text == normalise(text)
    assert time.process_time() - started < 5
