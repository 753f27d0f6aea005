"""Which language a completion is in: short texts of many, mixed ones, formulas and code, a megabyte."""

import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlvr
from rlvr import Language, UsageError
from tests.processes import in_turn
from tests.rewards.parts import bounded, value

TEXTS = {
    "en": "The train leaves at nine, so we have to walk to the station before breakfast.",
    "de": "Der Zug fährt um neun Uhr ab, also müssen wir vor dem Frühstück zum Bahnhof gehen.",
    "fr": "Le train part à neuf heures, donc nous devons marcher jusqu'à la gare avant le petit déjeuner.",
    "es": "El tren sale a las nueve, así que tenemos que caminar hasta la estación antes del desayuno.",
    "vi": "Tàu khởi hành lúc chín giờ, vì vậy chúng ta phải đi bộ đến nhà ga trước bữa sáng.",
    "ru": "Поезд отправляется в девять часов, поэтому нам нужно дойти до вокзала до завтрака.",
    "el": "Το τρένο φεύγει στις εννέα, οπότε πρέπει να περπατήσουμε μέχρι τον σταθμό.",
    "ar": "يغادر القطار في الساعة التاسعة، لذلك علينا أن نمشي إلى المحطة قبل الإفطار.",
    "he": "הרכבת יוצאת בשעה תשע ולכן עלינו ללכת לתחנה לפני ארוחת הבוקר.",
    "hi": "ट्रेन नौ बजे निकलती है, इसलिए हमें नाश्ते से पहले स्टेशन तक पैदल जाना होगा।",
    "th": "รถไฟออกเวลาเก้าโมง ดังนั้นเราต้องเดินไปสถานีก่อนอาหารเช้า",
    "ko": "기차는 아홉 시에 출발하므로 우리는 아침 식사 전에 역까지 걸어가야 합니다.",
    "ja": "電車は九時に出発するので、朝食の前に駅まで歩いて行かなければなりません。",
    "zh": "火车九点出发，所以我们必须在早餐之前走到车站，然后在那里买票，再找到我们的座位坐下来。",
}


@pytest.mark.parametrize("code", TEXTS)
def test_a_text_is_in_its_language_and_in_no_other(code: str):
    """Scripts with and without spaces, from left and from right, with vowels that sit on the letters."""
    assert {other: value(Language(other), TEXTS[code]) for other in TEXTS} == {
        o: float(o == code) for o in TEXTS
    }


@pytest.mark.parametrize(
    ("code", "text", "share"),
    [
        (
            "en",
            "I think, 所以 the answer is that we have to walk to the station.",
            Fraction(12, 14),
        ),
        ("en", "We add $x^2 + y^2$ and take \\frac{1}{2} of it, so the total is forty-two.", 1),
        (
            "en",
            "Now \\[ \\text{Der Zug fährt um neun Uhr ab} \\] gives us the total number of trains.",
            1,
        ),
        (
            "de",
            "```python\n# this is an English comment in a block of code\n```\n" + TEXTS["de"],
            1,
        ),
        ("en", TEXTS["en"].upper(), 1),
        ("en", TEXTS["en"] + " Ok.", 1),  # a short rest goes with the last run
    ],
)
def test_words_of_another_language_lose(code: str, text: str, share: Fraction):
    """Words of the language in its main script over all words; formulas and code are neither."""
    assert value(Language(code), text) == pytest.approx(float(share))


LENGTHS = {"en": 15, "de": 16, "ru": 12}
"""Words of a text, as a reader counts them."""


@settings(max_examples=20)
@given(st.lists(st.sampled_from(list(LENGTHS)), min_size=1, max_size=5))
def test_each_language_has_the_share_of_its_words(codes):
    """Of texts one after the other, in any order."""
    text = " ".join(TEXTS[code] for code in codes)
    whole = sum(LENGTHS[code] for code in codes)
    for code, length in LENGTHS.items():
        assert value(Language(code), text) == pytest.approx(length * codes.count(code) / whole)


@pytest.mark.parametrize(
    "text",
    [
        "", "\\boxed{42}", "$x^2 + y^2 = z^2$", "\\[ \\int_0^1 x \\, dx \\]", "$$a+b$$ \\(c\\)",
        "```\nprint('hello')\n```", "1 + 1 = 2", "x y z " * 100, "So 2 + 2 = 4.",
        "日本", "\x00" * 100, "\ud800" * 100, "😀" * 100,
    ],
)  # fmt: skip
def test_what_is_too_short_to_tell_gets_the_benefit(text: str):
    """Formulas, code and numbers alone are in no language: fewer than 24 letters."""
    assert value(Language("en"), text) == 1.0


MEGABYTES = {
    "both": ((TEXTS["en"] + " ") * 6_000 + (TEXTS["ru"] + " ") * 6_000, 15 / 27),  # of words
    "en": ((TEXTS["en"] + " ") * 12_000, 1.0),
    "zh": ((TEXTS["zh"] + " ") * 8_000, 0.0),
    "brackets": ("\\[" * 500_000, 1.0),
    "dollars": ("$" * 1_000_000, 1.0),
    "ticks": ("`" * 1_000_000, 1.0),
    "lines": ("a.\n" * 300_000, 1.0),
    "one word": ("a" * 1_000_000, 0.0),
}


@pytest.mark.parametrize("name", in_turn(MEGABYTES, 3))
def test_a_megabyte_of_language_takes_a_moment(name: str):
    """No more than a thousand runs of sentences are asked about."""
    text, share = MEGABYTES[name]
    with bounded():
        assert value(Language("en"), text) == pytest.approx(share, abs=0.02)


def test_an_unknown_language_is_refused():
    """With those that there are: codes have two letters."""
    with pytest.raises(
        UsageError,
        match=r"Language\('english'\): no such language; known: .*\bde\b.*\ben\b.*\bzh\b",
    ):
        Language("english")


def test_without_its_package_language_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    """None in sys.modules is how Python marks a module that cannot be imported."""
    monkeypatch.setitem(sys.modules, "py3langid", None)
    with pytest.raises(
        rlvr.MissingDependency,
        match=r"py3langid.* is not installed.*pip install -c constraints\.txt '\.\[language\]'",
    ):
        Language("en")
