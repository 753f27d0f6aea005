"""Which commas are decimal points: those that can be nothing else, and others after a prompt that has such."""

import pytest

from rlvr.verifiers.math.fold import with_commas

GERMAN = "Gib 3,14 auf zwei Stellen an."


@pytest.mark.parametrize(
    ("answer", "reference", "prompt", "texts"),
    [
        ("0,5", "5", "", ("0.5", "5")),
        ("5", "0,5", "", ("5", "0.5")),
        ("12,5 %", "1.234,5", "", ("12.5 %", "1234.5")),
        ("12,5", "1,25", "", None),
        ("12,5", "1,25", "Say it.", None),
        ("12,5", "1,25", GERMAN, ("12.5", "1.25")),
        (" 12,5 ", "7", GERMAN, (" 12.5 ", "7")),
        ("12,5", "1,25", GERMAN + " It is 2.5 here.", None),
        ("1,234", "2,5", GERMAN, ("1,234", "2.5")),
        ("(2,5)", "2.5", GERMAN, None),
        ("x,5", "7", GERMAN, None),
    ],
)
def test_commas_that_are_decimal_points(answer, reference, prompt, texts):
    """`0,5`, percent and grouped thousands always are; a pair or `1,234` never; a point in the prompt decides."""
    assert with_commas(answer, reference, prompt) == texts
