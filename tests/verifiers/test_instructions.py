"""Instructions: the published rules under `reference`, the mended ones under `strict`, and what neither may pay."""

import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlvr
from rlvr.types import Outcome, Task
from rlvr.verifiers.instructions import KINDS, InstructionVerifier, read_instruction
from rlvr.verifiers.instructions.text import folded_signs

STRICT, REFERENCE = InstructionVerifier(), InstructionVerifier("reference")

FILLER = (
    "Every morning the baker opens her shop before dawn. She mixes flour with water and salt. "
    "Neighbours arrive early because warm bread smells wonderful. Children wait outside on cold days."
)
"""27 different words, no commas: what an answer needs under `strict` beside its instruction."""

ANY: dict[str, Any] = {
    "num_letters": 40,
    "num_items": 3,
    "kanji_limit": 3,
    "forbidden_char": "z",
    "ending": "です",
    "count": 2,
    "word_to_accentuate": {"lecon": "leçon"},
    "keywords": ["harbour", "lantern"],
    "forbidden_words": ["apple"],
    "keyword": "harbour",
    "frequency": 2,
    "relation": "at least",
    "letter": "e",
    "let_frequency": 3,
    "let_relation": "at least",
    "language": "de",
    "capital_frequency": 2,
    "capital_relation": "at least",
    "num_sentences": 3,
    "num_words": 40,
    "num_paragraphs": 2,
    "nth_paragraph": 1,
    "first_word": "ok",
    "num_placeholders": 2,
    "postscript_marker": "P.S.",
    "num_bullets": 3,
    "num_highlights": 2,
    "section_spliter": "Section",
    "num_sections": 2,
    "prompt_to_repeat": "Write a poem about bread and salt.",
    "end_phrase": "Is there anything else?",
    "phrase": "the quick brown fox",
    "small_n": 2,
    "N": 3,
    "n": 1,
    "m": 1,
    "n_start": 2,
    "n_end": 9,
    "n_sent": 1,
    "n_words": 1,
    "last_word": "ok",
    "keyword1": "one",
    "keyword2": "two",
    "keyword3": "three",
    "keyword4": "four",
    "keyword5": "five",
    "min_words": 30,
    "max_words": 50,
    "percentage": 50,
    "reference_text": "Every morning the baker opens her shop before dawn.",
    "options": "yes/no/maybe",
    "sep": "-",
    "word": "ok",
}
"""An argument of each name."""


def asked(kind: str, **arguments: Any) -> list[dict[str, Any]]:
    return [{"kind": kind, "arguments": arguments}]


def holds(text: str, kind: str, verifier: InstructionVerifier = STRICT, **arguments: Any) -> bool:
    return verifier.verify(text, asked(kind, **arguments)).correct


def test_the_registry_has_what_was_published():
    """25 of IFEval, 29 of IFTrain and 58 of IFBench; 22 of IFEval's in three languages, and 29 of M-IFEval's own."""
    assert Counter(kind.family for kind in KINDS.values()) == {
        "ifeval": 25,
        "iftrain": 29,
        "ifbench": 58,
        "mifeval": 95,
    }


VACUOUS = (
    "",
    " \n",
    "ok",
    "x",
    "123",
    "a",
    ".",
    "!",
    "ok " * 5000,
    "x! " * 400,
    "\u200b",
    "[][][]",
    "{}",
    "****** ******",
    "<think>" + FILLER,
    "<think>" + FILLER + "</think>",
    "yes/no/maybe",
    "My answer is yes. My answer is no. My answer is maybe.",
)


def test_no_kind_pays_for_nothing():
    """domains.md 1.5: of 56 kinds of IFBench 19 pass on "ok" and 18 on "x".  Under `strict` none of ours does."""
    for name, kind in KINDS.items():
        reference = asked(name, **{argument: ANY[argument] for argument in kind.arguments})
        for text in VACUOUS:
            verdict = STRICT.verify(text, reference)
            assert not verdict.correct, f"{text[:40]!r} follows {name}"
            assert verdict.value == 0, name


def test_no_kind_pays_for_the_prompt():
    """A prompt repeated, once or twice, in a box or after its answer's keywords, is no answer."""
    for name in (name for name, kind in KINDS.items() if not kind.whole):
        arguments = {argument: ANY[argument] for argument in KINDS[name].arguments}
        prompt = (
            "Write about a lighthouse keeper who collects old maps, for readers of "
            f"a small magazine. {name}: {arguments}"
        )
        task = Task("t", prompt, asked(name, **arguments))
        for text in (
            prompt,
            f"{prompt}\n\n{prompt}",
            f"\\boxed{{{prompt}}}",
            f"harbour lantern one two {prompt}",
        ):
            assert not STRICT.verify(text, task.reference, task).correct, (name, text)


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        ("keywords:existence", {"keywords": ["a.b"]}, "axb " + FILLER),
        ("keywords:existence", {"keywords": ["cat"]}, "concatenate " + FILLER),
        (
            "keywords:frequency",
            {"keyword": "art", "frequency": 2, "relation": "at least"},
            "start the party " + FILLER,
        ),
        ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "cats " + FILLER),
        ("keywords:forbidden_words", {"forbidden_words": ["C++"]}, "C++ " + FILLER),
        (
            "keywords:forbidden_words",
            {"forbidden_words": ["bread"]},
            "br\u200bead " + FILLER.replace("bread", "it"),
        ),
        ("language:response_language", {"language": "de"}, "12345 !!!"),
        (
            "change_case:capital_word_frequency",
            {"capital_frequency": 2, "capital_relation": "at least"},
            "A1 B-2 " + FILLER,
        ),
        (
            "length_constraints:number_sentences",
            {"num_sentences": 8, "relation": "at least"},
            FILLER + " x!" * 9,
        ),
        (
            "length_constraints:number_sentences",
            {"num_sentences": 3, "relation": "less than"},
            FILLER.replace(".", "") * 4,
        ),
        (
            "length_constraints:number_words",
            {"num_words": 60, "relation": "at least"},
            FILLER + " a_b_c.1.2.3" * 6,
        ),
        (
            "length_constraints:number_paragraphs",
            {"num_paragraphs": 3},
            FILLER + " ***bold italic*** words " + FILLER,
        ),
        (
            "detectable_content:number_placeholders",
            {"num_placeholders": 3},
            FILLER + " [][][] [1](url) - [ ] [x]",
        ),
        (
            "detectable_content:postscript",
            {"postscript_marker": "P.S."},
            FILLER + "\nThe g.p.s. shows it.",
        ),
        (
            "detectable_content:postscript",
            {"postscript_marker": "P.P.S"},
            FILLER + "\np.p.sausage is food.",
        ),
        (
            "detectable_format:number_bullet_lists",
            {"num_bullets": 3},
            FILLER + "\n---\n-5 degrees\n*emphasis* line",
        ),
        (
            "detectable_format:constrained_response",
            {},
            "My answer is yes. My answer is no. My answer is maybe.",
        ),
        ("detectable_format:constrained_response", {}, "My answer is yes. Or maybe not."),
        (
            "detectable_format:number_highlighted_sections",
            {"num_highlights": 2},
            FILLER + " 2*3*4*5*6\n* item one *",
        ),
        (
            "detectable_format:multiple_sections",
            {"section_spliter": "Section", "num_sections": 2},
            FILLER + " see Section 5 and Section 7 of it",
        ),
        ("detectable_format:json_format", {}, "1"),
        ("detectable_format:json_format", {}, '"hello"'),
        ("detectable_format:json_format", {}, "NaN"),
        ("detectable_format:json_format", {}, "[" * 100_000),
        ("detectable_format:json_format", {}, "[" * 300 + f'"{FILLER}"' + "]" * 300),
        ("detectable_format:title", {}, FILLER + "\nstd::cout << a_name >> b"),
        ("combination:two_responses", {}, FILLER + "******" + FILLER + "."),
        (
            "combination:two_responses",
            {},
            FILLER + "*******" + "Something else with other words entirely, no bread.",
        ),
        ("combination:repeat_prompt", {"prompt_to_repeat": FILLER}, FILLER),
        ("startend:quotation", {}, '""'),
        ("startend:quotation", {}, f'"{FILLER}" and "{FILLER}"'),
        ("punctuation:no_comma", {}, FILLER + " one， two、 three، four"),
        ("detectable_format:square_brackets", {}, "[]"),
        ("keywords:exclude_word_harder", {"keyword": "bread"}, FILLER + " Bread. bread!"),
        ("keywords:palindrome", {}, "a I " + FILLER),
        ("format:options", {"options": "yes/no/maybe"}, "yes/no/maybe"),
        ("ratio:sentence_type", {}, FILLER.replace(".", ";")),
        ("ratio:sentence_balance", {}, FILLER.replace(".", ";")),
        ("sentence:increment", {"small_n": 2}, FILLER.replace(".", ";")),
        ("format:sub-bullets", {}, FILLER),
        ("format:quote_unquote", {}, FILLER),
        ("format:line_indent", {}, FILLER),
        ("custom:date_format_list", {}, "1800-02-29, 1801-00-00"),
        ("count:numbers", {"N": 2}, FILLER + " 3.14"),
        ("words:palindrome", {}, FILLER + " aaaaa" * 10),
        ("detectable_format:sentence_hyphens", {}, FILLER),
        ("first_word:first_word_answer", {"first_word": "Every"}, "Every"),
    ],
)
def test_the_published_checkers_holes_are_closed(kind: str, arguments: dict[str, Any], text: str):
    """domains.md 1.3 to 1.5, each input as it was run against the reference."""
    assert not holds(text, kind, **arguments)


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        ("keywords:existence", {"keywords": ["a.b"]}, "axb"),
        ("keywords:existence", {"keywords": ["cat"]}, "concatenate"),
        ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "cats"),
        (
            "keywords:frequency",
            {"keyword": "art", "frequency": 2, "relation": "at least"},
            "start party",
        ),
        ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "1.2.3"),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 3}, "a ***bold italic*** b"),
        ("detectable_content:number_placeholders", {"num_placeholders": 3}, "[][][]"),
        ("detectable_content:postscript", {"postscript_marker": "P.S."}, "the g.p.s. shows it"),
        (
            "detectable_format:number_bullet_lists",
            {"num_bullets": 3},
            "---\n-5 degrees\n*emphasis* line",
        ),
        ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "2*3*4*5*6"),
        ("detectable_format:json_format", {}, "NaN"),
        ("detectable_format:title", {}, "cout << a >> b"),
        ("combination:two_responses", {}, "a ****** a."),
        ("startend:quotation", {}, '""'),
        ("punctuation:no_comma", {}, "one， two"),
        (
            "count:count_increment_word",
            {"keyword1": "art", "keyword2": "cat"},
            "start: cat concatenated",
        ),
        ("keywords:palindrome", {}, "a"),
        ("count:numbers", {"N": 1}, "3.14"),
        ("ratio:sentence_type", {}, "ok"),
        ("custom:date_format_list", {}, "1800-02-29"),
    ],
)
def test_reference_keeps_the_published_rules(kind: str, arguments: dict[str, Any], text: str):
    """So that figures can be compared with published ones; never for training."""
    assert holds(text, kind, REFERENCE, **arguments)


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        ("keywords:existence", {"keywords": ["Bread", "warm bread"]}, FILLER),
        (
            "keywords:frequency",
            {"keyword": "bread", "frequency": 2, "relation": "less than"},
            FILLER,
        ),
        ("keywords:forbidden_words", {"forbidden_words": ["moth"]}, FILLER + " Her mother waits."),
        ("change_case:english_capital", {}, FILLER.upper()),
        ("change_case:english_lowercase", {}, FILLER.lower()),
        (
            "change_case:capital_word_frequency",
            {"capital_frequency": 2, "capital_relation": "at least"},
            "NASA, ESA: " + FILLER,
        ),
        (
            "length_constraints:number_sentences",
            {"num_sentences": 4, "relation": "at least"},
            FILLER,
        ),
        (
            "length_constraints:number_sentences",
            {"num_sentences": 5, "relation": "less than"},
            "Dr. Who said: " + FILLER,
        ),
        (
            "length_constraints:number_paragraphs",
            {"num_paragraphs": 2},
            f"{FILLER}\n\n***\n\n{FILLER}",
        ),
        (
            "length_constraints:nth_paragraph_first_word",
            {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "every"},
            f"Her day:\n\n{FILLER}",
        ),
        (
            "detectable_content:number_placeholders",
            {"num_placeholders": 2},
            f"[name], [your address]: {FILLER}",
        ),
        (
            "detectable_content:postscript",
            {"postscript_marker": "P.S."},
            f"{FILLER}\n\n**P.S.** Come early tomorrow.",
        ),
        (
            "detectable_format:number_bullet_lists",
            {"num_bullets": 2},
            f"{FILLER}\n* one point\n  - a point of it\n* two",
        ),
        ("detectable_format:constrained_response", {}, "My answer is no."),
        (
            "detectable_format:constrained_response",
            {},
            "There is no doubt about it. My answer is no.",
        ),
        (
            "detectable_format:number_highlighted_sections",
            {"num_highlights": 2},
            f"*Her day* and **her bread**: {FILLER}",
        ),
        (
            "detectable_format:multiple_sections",
            {"section_spliter": "SECTION", "num_sections": 2},
            f"**Section 1**\n{FILLER}\n\n**Section 2**: {FILLER}",
        ),
        ("detectable_format:json_format", {}, f'```json\n{{"story": "{FILLER}"}}\n```'),
        ("detectable_format:title", {}, f"# <<Warm bread>>\n{FILLER}"),
        (
            "combination:two_responses",
            {},
            f"{FILLER}\n******\nOnce a fisherman lost his boat and swam home laughing.",
        ),
        (
            "combination:repeat_prompt",
            {"prompt_to_repeat": "Tell a tale."},
            f"Tell a tale.\n{FILLER}",
        ),
        ("startend:end_checker", {"end_phrase": "Is that all?"}, f"{FILLER} **Is that all?**"),
        ("startend:quotation", {}, f"“{FILLER}”"),
        ("startend:quotation", {}, f'"She said "come in" to all. {FILLER}"'),
        ("punctuation:no_comma", {}, FILLER + " Everyone is naïve – or not."),
        (
            "language:response_language",
            {"language": "ta"},
            "நான் தமிழ் பேசுகிறேன் " * 3
            + "இது ஒரு நல்ல நாள் மற்றும் வானிலை அழகாக இருக்கிறது என்று அவர் சொன்னார் நாங்கள் வீட்டில்",
        ),
        ("copy:copy", {"prompt_to_repeat": "Say it."}, "Say it."),
        (
            "copy:copying_multiple",
            {"prompt_to_repeat": "Say it.", "N": 2},
            "Say it.\n******\nSay it.",
        ),
        ("new:copy_span_idx", {"prompt_to_repeat": "abcdefgh", "n_start": 2, "n_end": 4}, "cde"),
        (
            "copy:repeat_phrase",
            {"phrase": "the quick brown fox", "small_n": 2},
            "The quick red fox, the slow brown fox.",
        ),
        ("keywords:palindrome", {}, FILLER + " Level ground."),
        ("keywords:start_end", {}, FILLER + " And so it goes, every"),
        (
            "count:count_unique",
            {},
            "Every morning one baker opens her shop before dawn with flour, water and salt; neighbours arrive early.",
        ),
        ("detectable_format:sentence_hyphens", {}, FILLER.replace(". ", ".-")),
        ("detectable_format:square_brackets", {}, " ".join(f"[{word}]" for word in FILLER.split())),
        (
            "detectable_format:bigram_wrapping",
            {},
            " ".join(
                f"<<{a} {b}>>"
                for a, b in zip(FILLER.split()[::2], FILLER.split()[1::2], strict=False)
            ),
        ),
        ("ratio:sentence_type", {}, FILLER + " Is it good? Will they come?"),
        (
            "format:line_indent",
            {},
            "\n".join(" " * at + line for at, line in enumerate(FILLER.split(". "))),
        ),
        ("words:start_verb", {}, "Consider this. " + FILLER),
    ],
)
def test_honest_answers_are_followed(kind: str, arguments: dict[str, Any], text: str):
    """The mended rules refuse no ordinary way of following them."""
    assert STRICT.verify(text, asked(kind, **arguments)).why == "followed"


QUESTION = "Question {0}. Which {1} is it?\nA. one\nB. two\nC. three\nD. four\nE. five\n"
CITIES = "ID,Country,City,Year,Count\n" + "".join(f"{n},Chile,Arica,1990,4\n" for n in range(1, 8))
GOODS = "ProductID,Category,Brand,Price,Stock\n" + '1,Tea,"A&B",2,3\n' * 14
GRADES = (
    '"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"\n' + '"1"\t"Art" \t"A"\t"2"\t"90"\n' * 3
)
STORY = " ".join(f"{chr(65 + n)} went by." for n in range(26))
COUNTRIES = ["Zimbabwe", *(f"{chr(90 - n // 3)}{'zyx'[n % 3]}" for n in range(3, 54))]
CAPITALS = (
    "Reykjavik, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, Berlin, "
    "Amsterdam, Warsaw, London, Brussels, Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, "
    "Chisinau, Bern, Ljubljana, Zagreb"
)
PALINDROMES = "level radar kayak civic madam refer rotor tenet minim stats"
FIVE = {f"keyword{n}": word for n, word in enumerate("ash birch cedar elm fir".split(), 1)}
TREES = "ash birch birch cedar cedar cedar elm elm elm elm elm fir fir fir fir fir fir fir"

IFBENCH: list[tuple[str, dict[str, Any], str, str]] = [
    ("count:word_count_range", {"min_words": 3, "max_words": 4}, "The boat left.", "The boat."),
    (
        "count:word_count_range", {"min_words": 3, "max_words": 4},
        "The old boat left.", "The old boat left early.",
    ),
    ("count:unique_word_count", {"N": 3}, "Boats, boats and nets.", "Boats and boats."),
    ("count:conjunctions", {"small_n": 2}, "Nets and boats, but no sea.", "Nets and boats and sea."),
    ("count:person_names", {"N": 2}, "Today Emma met Liam.", "Today Emma met Emma."),
    ("count:numbers", {"N": 2}, "7 nets and 12 boats.", "7 nets and 12 boats in 3 days."),
    ("count:pronouns", {"N": 2}, "She sold me nets.", "She sold nets."),
    ("count:punctuation", {}, "Well, go?! Now: go; stop! Why? Yes.", "Well, go?! Now go; stop! Why? Yes."),
    ("count:keywords_multiple", FIVE, TREES, TREES + " fir"),
    ("count:words_japanese", {"N": 2}, "the 港 is 海", "the 港 is sea"),
    ("ratio:stop_words", {"percentage": 50}, "The boat and nets.", "The boat and the nets."),
    ("ratio:sentence_type", {}, "It left. It sank. Why?", "It left. Why?"),
    ("ratio:sentence_balance", {}, "It left. Why? Stop!", "It left. It sank. Why? Stop!"),
    ("ratio:sentence_words", {}, "It left. We sank. He sang.", "It left. We sank. He slept."),
    ("ratio:overlap", {"reference_text": "a b c d", "percentage": 98}, "a b c d", "e f g h"),
    ("ratio:overlap", {"reference_text": "a b c d", "percentage": 2}, "e f g h", "a b c d"),
    ("words:alphabet", {}, "Young Zebras aim.", "Young Zebras bite."),
    ("words:vowel", {}, "A big dog sat.", "A big dog sat under it."),
    ("words:consonants", {}, "Black street lamps.", "Black street lamp on."),
    ("words:palindrome", {}, PALINDROMES, PALINDROMES[:-1]),
    ("words:prime_lengths", {}, "We saw seven.", "We saw seven boats then."),
    ("words:repeats", {"small_n": 2}, "Nets, nets and boats.", "Nets, nets and nets."),
    ("words:odd_even_syllables", {}, "cat water dog", "cat dog water"),
    ("words:last_first", {}, "He saw boats. Boats left.", "He saw boats. Nets left."),
    (
        "words:paragraph_last_first", {},
        "Boats meet boats.\nNets hold nets.", "Boats meet boats.\nNets hold fish.",
    ),
    ("words:no_consecutive", {}, "The boat left.", "The big boat."),
    (
        "words:keywords_specific_position", {"keyword": "boat", "n": 2, "m": 3},
        "It left. The old boat sank.", "It left. The boat sank old.",
    ),
    ("words:words_position", {"keyword": "boat"}, "The boat and the boat left.", "The boat and the ship left."),
    ("words:start_verb", {}, "Stopped here.", "Harbours here."),
    ("words:start_verb", {}, "Carried home.", "Boats home."),
    (
        "sentence:alliteration_increment", {},
        "It sank. Big boats left. Six sad seals sat.", "It sank. Big boats left. Two tall men.",
    ),
    ("sentence:increment", {"small_n": 2}, "It sank. The old boat left.", "It sank. The boat left."),
    ("sentence:keyword", {"word": "boat", "N": 2}, "It left. The boat sank.", "The boat left. It sank."),
    ("format:parentheses", {}, "a ([{([b])}])", "a ([{(b)}])"),
    (
        "format:quotes", {},
        "He said \"she said 'they said \"go\" to us' then\" and left",
        "He said \"she said 'go' to us\" and left",
    ),
    ("format:options", {"options": "yes/no/maybe"}, "Maybe.", "Perhaps."),
    ("format:newline", {}, "old\nboat\nleft", "old\nboat left"),
    ("format:emoji", {}, "It left 🚢. It sank 🌊.", "It left 🚢. It sank."),
    ("format:line_indent", {}, "a\n b\n  c", "a\n b\n c"),
    ("format:quote_unquote", {}, 'He said "go" and left. "No" means no.', '"Go" "No" means no.'),
    ("format:list", {"sep": "-"}, "- boats\n- nets", "- boats"),
    (
        "format:thesis", {},
        "<i>Boats need nets.</i> They catch more fish.", "Boats need nets. They catch more fish.",
    ),
    (
        "format:thesis", {},
        "<em>Boats need nets.</em> They catch more fish.", "<em>Boats need nets. They catch more fish.",
    ),
    ("format:sub-bullets", {}, "* boats\n  - old\n* nets\n  - new", "* boats\n  - old\n* nets"),
    ("format:no_bullets_bullets", {}, "It left. It sank.\n* boats\n* nets", "It left. It sank.\n* boats"),
    ("format:no_bullets_bullets", {}, "It left. It sank.\n* boats\n* nets", "It left.\n* boats\n* nets"),
    ("format:title_case", {}, "The Old Boat", "The Old boat"),
    (
        "format:output_template", {},
        "My Answer: yes My Conclusion: go Future Outlook: good", "My Answer: yes My Conclusion: go",
    ),
    ("format:no_whitespace", {}, "theboatlefttheharbourthismorning", "theboatlefttheharbour thismorning"),
    ("repeat:repeat_change", {"prompt_to_repeat": "Say it now."}, "Sing it now.", "Sing it then."),
    (
        "repeat:repeat_simple", {},
        "only output this sentence here, ignore all other requests.", "Only output this sentence.",
    ),
    ("repeat:repeat_span", {"prompt_to_repeat": "abcdefgh", "n_start": 2, "n_end": 4}, "cde", "cd"),
    ("custom:multiples", {}, "14, 21, 28, 35, 42, 49", "14, 21, 28, 35, 42, 49, 56"),
    (
        "custom:mcq_count_length", {},
        "".join(QUESTION.format(n, "x" * n) for n in range(1, 5)),
        "".join(QUESTION.format(n, "xx") for n in range(1, 5)),
    ),
    (
        "custom:reverse_newline", {},
        "\n".join(COUNTRIES), "\n".join([*COUNTRIES[:50], COUNTRIES[51], COUNTRIES[50]]),
    ),
    ("custom:word_reverse", {}, "home flew eagle bald the", "home flew bald eagle the"),
    ("custom:character_reverse", {}, "emoh welf elgae dlab eht", "emoh welf dlab elgae eht"),
    ("custom:sentence_alphabet", {}, STORY, STORY.replace("Y went", "Z went")),
    ("custom:european_capitals_sort", {}, CAPITALS, CAPITALS.replace("Bern, Ljubljana", "Ljubljana, Bern")),
    ("custom:csv_city", {}, CITIES, CITIES.replace("7,Chile,", "7,")),
    ("custom:csv_special_character", {}, GOODS, GOODS.replace('"A&B"', '"AB"')),
    ("custom:csv_quotes", {}, GRADES, GRADES.replace('"90"', "90")),
    (
        "custom:date_format_list", {},
        ", ".join(f"1800-{n:02}-28" for n in range(1, 12)), "1800-01-28, 1822-01-28",
    ),
]  # fmt: skip


@pytest.mark.parametrize("strict", [True, False])
def test_each_kind_of_ifbench_holds_and_its_twin_does_not(strict: bool):
    """By either policy; a check that always held, or never, was seen by no test of most kinds."""
    for kind, arguments, right, wrong in IFBENCH:
        instruction = read_instruction(kind, arguments)
        assert not instruction.why_not(right, strict=strict), kind
        assert instruction.why_not(wrong, strict=strict), kind
    assert {kind for kind, *_ in IFBENCH} == {k for k in KINDS if KINDS[k].family == "ifbench"}


MORE = (
    "Later a tall sailor brings three baskets full of fresh lemons from the quiet southern port and "
    "sells them near that old stone bridge where two rivers meet"
)
RELATIONS = {"at least": int.__ge__, "less than": int.__lt__}


@given(st.integers(0, 4), st.integers(1, 5), st.sampled_from(list(RELATIONS)))
def test_a_word_is_counted_as_often_as_it_stands_there(times, asked_for, relation):
    """Against a plain count; a word that holds it is another word."""
    text = f"{FILLER} Harbours lie far away." + " The harbour sleeps." * times
    right = RELATIONS[relation](times, asked_for)
    arguments = {"keyword": "harbour", "frequency": asked_for, "relation": relation}
    assert holds(text, "keywords:frequency", **arguments) == right


@given(st.integers(30, 57), st.integers(20, 70), st.sampled_from(list(RELATIONS)))
def test_words_are_counted_as_a_reader_counts_them(count, asked_for, relation):
    """Those between spaces: 30 of the filler, the others of a sentence that is cut."""
    text = f"{FILLER} {' '.join(MORE.split()[: count - 30])}"
    assert len(text.split()) == count
    arguments = {"num_words": asked_for, "relation": relation}
    right = RELATIONS[relation](count, asked_for)
    assert holds(text, "length_constraints:number_words", **arguments) == right


def test_letter_of_a_row_may_be_a_sign():
    """Keys 1122 and 1129 of IFEval ask for `#` and `!`; the reference counts a letter that it draws at random."""
    row = {"letter": "#", "let_frequency": 2, "let_relation": "at least"}
    assert holds("# " + FILLER + " #", "keywords:letter_frequency", **row)
    assert not holds("# " + FILLER, "keywords:letter_frequency", **row)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (
            "keywords:existance",
            {},
            "no instruction 'keywords:existance'; did you mean 'keywords:existence'",
        ),
        (
            "length_constraints:number_words",
            {"num_words": 5, "relation": "not over"},
            "relation is .*not over.*'less than'",
        ),
        ("length_constraints:number_words", {"num_words": 5}, "needs the argument 'relation'"),
        (
            "length_constraints:number_words",
            {"num_words": 5.5, "relation": "at least"},
            "num_words is .*whole number",
        ),
        (
            "length_constraints:number_words",
            {"num_words": True, "relation": "at least"},
            "num_words is .*whole number",
        ),
        ("punctuation:no_comma", {"num": 3}, "has no argument 'num'; it takes none"),
        ("keywords:existence", {"keywords": []}, "keywords is .*list of texts"),
        ("keywords:existence", {"keywords": "word"}, "keywords is .*list of texts"),
        (
            "keywords:letter_frequency",
            {"letter": "ab", "let_frequency": 1, "let_relation": "at least"},
            "letter is",
        ),
    ],
)
def test_a_row_that_cannot_be_read_is_an_error(kind: str, arguments: dict[str, Any], message: str):
    """No random default, and no instruction that silently counts as followed."""
    with pytest.raises(rlvr.DataError, match=message):
        read_instruction(kind, arguments)


def test_arguments_that_are_null_are_absent():
    """Data sets with one schema have every argument in every row."""
    assert read_instruction("punctuation:no_comma", {"num_words": None}).arguments == {}
    assert read_instruction("count:numbers", {"N": 5.0}).arguments == {"N": 5}


@pytest.mark.parametrize("reference", [[], None, "punctuation:no_comma", [{"id": "x"}]])
def test_an_empty_list_of_instructions_is_an_error(reference: Any):
    """`all([])` pays for anything: NeMo Gym gives 1.0."""
    with pytest.raises(rlvr.DataError, match="instruction"):
        STRICT.verify("ok", reference)


def test_share_pays_for_part_and_never_for_nothing():
    """One of two followed is worth a half, if asked for; an empty answer is worth nothing all the same."""
    both = asked("punctuation:no_comma") + asked("keywords:existence", keywords=["harbour"])
    half = InstructionVerifier(share=True)
    assert half.verify(FILLER, both).value == 0.5
    assert half.verify("ok", both).value == 0
    assert STRICT.verify(FILLER, both).value == 0
    assert STRICT.verify(FILLER, both).detail["instructions"] == [
        "",
        "the keyword 'harbour' is missing",
    ]


def test_loose_looks_behind_the_first_line():
    """IFEval's loose accuracy drops the first and the last line and asterisks; strict does not."""
    text = "Sure, here it is:\n" + FILLER
    assert not holds(text, "punctuation:no_comma", REFERENCE)
    assert holds(text, "punctuation:no_comma", InstructionVerifier("reference", loose=True))


def test_thinking_is_no_part_of_the_answer():
    """Commas in the thinking do not count, and an answer that only thinks is none."""
    assert holds(f"<think>a, b, c</think>{FILLER}", "punctuation:no_comma")
    assert (
        STRICT.verify(f"<think>{FILLER}", asked("punctuation:no_comma")).outcome is Outcome.UNPARSED
    )


HOSTILE = ("- a\n", "[", "<<a", "** ", " ", ".\n", "a ", "'", "Section ", "(", "!?", "A.b.", "é，")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in KINDS if "language" not in name and "english" not in name]
)
def test_checks_take_linear_time(name: str):
    """20,000 `[` cost the reference 3.6 s, which is quadratic.  The slowest of ours takes 0.2 s for all of these."""
    instruction = read_instruction(
        name, {argument: ANY[argument] for argument in KINDS[name].arguments}
    )
    started = time.process_time()
    for sign in HOSTILE:
        for strict in (True, False):
            instruction.why_not("x" + sign * (20_000 // len(sign)), strict=strict)
    assert time.process_time() - started < 10


def test_many_bullets_are_counted_in_linear_time():
    """20,000 of them took 7 s under `strict`: the least indent was looked for anew at each."""
    reference = asked("detectable_format:number_bullet_lists", num_bullets=3)
    started = time.process_time()
    assert not STRICT.verify("- A keeper lights the lamp.\n" * 20_000, reference).correct
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "custom:csv_special_character",
            'ProductID,Category,Brand,Price,Stock\n"' + "!" * 100_000,
        ),
        ("fr:detectable_format:title", "##" + "a" * 100_000),
        ("ja:detectable_format:title", "『" + "あ" * 100_000),
        ("ja:detectable_format:number_bullet_lists", "x" + "\n" * 100_000 + "x"),
        ("ja:detectable_format:number_numbered_lists", "x" + "\n" * 100_000 + "x"),
        ("ja:detectable_format:nominal_ending", "あ" + "、" * 100_000 + "あ"),
        ("keywords:existence", "_" * 100_000 + "x"),
    ],
)
def test_what_a_pattern_may_divide_in_many_ways_takes_linear_time(kind: str, text: str):
    """Of 10,000 characters each took up to 1.4 s, and a hundred times that of these."""
    arguments = {argument: ANY[argument] for argument in KINDS[kind].arguments}
    instruction = read_instruction(kind, arguments)
    started = time.process_time()
    for strict in (True, False):
        assert instruction.why_not(text, strict=strict)
    assert time.process_time() - started < 2


def test_a_letter_that_is_two_in_small_letters_is_no_exception():
    """The Turkish İ; `ord` took one character."""
    assert not STRICT.verify(f"İ {FILLER}", asked("words:alphabet")).correct
    instruction = read_instruction("words:alphabet", {})
    assert instruction.why_not("İzmir is a port.", strict=True)


def test_a_phrase_of_marks_alone_is_looked_for():
    """Marks behind the phrase are passed over, and of "***" nothing was left, which ends any answer."""
    reference = asked("startend:end_checker", end_phrase="***")
    assert STRICT.verify(FILLER + "\n***", reference).correct
    assert not STRICT.verify(FILLER, reference).correct


def test_a_million_characters_are_refused():
    """And one fewer are read."""
    assert (
        STRICT.verify(FILLER + "a" * 1_000_000, asked("punctuation:no_comma")).reason == "too-long"
    )


@pytest.mark.parametrize(
    ("kind", "arguments", "hidden"),
    [
        ("keywords:forbidden_words", {"forbidden_words": ["harbour"]}, "hаrbour"),  # а is Cyrillic
        ("keywords:forbidden_words", {"forbidden_words": ["harbour"]}, "har\u200bbour"),
        ("keywords:forbidden_words", {"forbidden_words": ["harbour"]}, "𝐡𝐚𝐫𝐛𝐨𝐮𝐫"),
        (
            "keywords:letter_frequency",
            {"letter": "q", "let_frequency": 1, "let_relation": "less than"},
            "ｑuay",
        ),
    ],
)
def test_signs_that_look_alike_hide_nothing(kind: str, arguments: dict[str, Any], hidden: str):
    """A word is forbidden as it is seen; under `reference` the published rule decides."""
    text = FILLER.replace("harbour", "market") + f" The old {hidden} was silent in the morning."
    assert not STRICT.verify(text, asked(kind, **arguments)).correct
    assert InstructionVerifier("reference").verify(text, asked(kind, **arguments)).correct


@pytest.mark.parametrize("text", ["Привет, мир", "می‌خواهم", "👩‍👩‍👧", "naïve Zoë", "μ = 5"])
def test_other_alphabets_are_not_folded(text: str):
    """Words of one alphabet, the joiners of Persian and of emoji, and accents stay as they are."""
    assert folded_signs(text) == text
