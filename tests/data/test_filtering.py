"""Which tasks stay: by pass rate, without duplicates, without what a test set holds."""

import json
import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

import rlvr
from rlvr.data.filtering import FilterRules, filter_rows, filter_tasks
from rlvr.data.overlap import TestSetOverlap, fold_text, near_duplicates
from rlvr.data.strengths import digest_of_reference, read_strengths
from rlvr.statistics import wilson


def rollouts(task: str, outcomes: str, prompt: str | None = None) -> list[dict]:
    """Records of one task: c correct, w wrong, p unparsed, - unscored."""
    names = {"c": "correct", "w": "wrong", "p": "unparsed", "-": "unscored"}
    asked = f"What is {task}?" if prompt is None else prompt
    return [
        {"task": task, "prompt": asked, "reference": "1", "outcome": names[o], "meta": {}}
        for o in outcomes
    ]


def test_tasks_are_kept_by_pass_rate():
    """By hand: 2/4 stays; 0/4 is too hard, 4/4 too easy; 1 scored rollout does not tell."""
    rows = [
        *rollouts("a", "ccww"),
        *rollouts("b", "wwwp"),
        *rollouts("c", "cccc"),
        *rollouts("d", "c---"),
    ]
    kept, dropped = filter_tasks(rows, FilterRules(min_rate=0.1, max_rate=0.9, min_n=4))
    assert [(task.id, task.correct, task.scored) for task in kept] == [("a", 2, 4)]
    assert {one.task.id: one.reason for one in dropped} == {
        "b": "too-hard",
        "c": "too-easy",
        "d": "too-few",
    }
    assert dropped[0].why == "too-hard: 0 of 4 correct, interval [0.000, 0.490]"
    assert dropped[2].why == "too-few: 1 scored rollouts, 3 unscored"


@given(
    st.lists(st.text("cwp-", min_size=1, max_size=6), min_size=1, max_size=5),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 3),
)
def test_the_rate_is_that_of_the_scored_rollouts(outcomes, low, span, least):
    """In whole numbers; what was unscored is ours and counts nowhere, and what is dropped has its reason."""
    high = min(low + span, 4)
    rows = [row for i, text in enumerate(outcomes) for row in rollouts(f"t{i}", text)]
    kept, dropped = filter_tasks(
        rows, FilterRules(min_rate=low / 4, max_rate=high / 4, min_n=least)
    )
    reasons = {}
    for i, text in enumerate(outcomes):
        right, scored = text.count("c"), len(text) - text.count("-")
        if scored < max(least, 1):
            reasons[f"t{i}"] = "too-few"
        elif 4 * right < low * scored:
            reasons[f"t{i}"] = "too-hard"
        elif 4 * right > high * scored:
            reasons[f"t{i}"] = "too-easy"
    assert {one.task.id: one.reason for one in dropped} == reasons
    assert [task.id for task in kept] == [
        f"t{i}" for i in range(len(outcomes)) if f"t{i}" not in reasons
    ]
    for task in kept:
        text = outcomes[int(task.id[1:])]
        assert (task.correct, task.scored, task.row()["unscored"]) == (
            text.count("c"),
            len(text) - text.count("-"),
            text.count("-"),
        )


def test_by_interval_a_few_unlucky_rollouts_cost_no_task():
    """0 of 4 may still be 0.49; 0 of 40 is at most 0.088 (Wilson), which is below 0.1."""
    rows = [*rollouts("few", "w" * 4), *rollouts("many", "w" * 40)]
    kept, dropped = filter_tasks(rows, FilterRules(min_rate=0.1, by="interval"))
    assert [task.id for task in kept] == ["few"]
    assert dropped[0].task.interval[1] == pytest.approx(0.0876, abs=1e-4)


def test_duplicates_go_whatever_their_case_and_punctuation():
    """The first stays; one that has another reference says so, for one of the two is wrong."""
    rows = [
        {"task": "a", "prompt": "How many legs has a spider?", "reference": 8},
        {"task": "b", "prompt": "How many legs has a SPIDER ?!", "reference": 8},
        {"task": "c", "prompt": "how many legs has a spider", "reference": 6},
        {"task": "d", "prompt": "3 + 4", "reference": 7},
        {"task": "e", "prompt": "3 - 4", "reference": -1},
    ]
    kept, dropped = filter_tasks(rows)
    assert [task.id for task in kept] == ["a", "d", "e"]
    assert [one.why for one in dropped] == [
        "duplicate: has the prompt of 'a'",
        "duplicate: has the prompt of 'a' and another reference",
    ]
    assert len(filter_tasks(rows, FilterRules(duplicates=False))[0]) == 5


WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()


def test_what_shares_thirteen_words_with_a_test_goes():
    """Twelve in a row may be chance; case and commas hide nothing; of a short test all words count, not three."""
    tests = [" ".join(WORDS), "Why is it so?", "And what then?"]
    rows = [
        {"task": "13", "prompt": "And " + ", ".join(WORDS[1:14]).upper() + ".", "reference": 1},
        {"task": "12", "prompt": "And " + " ".join(WORDS[1:13]) + ".", "reference": 1},
        {"task": "short", "prompt": "why is it so", "reference": 1},
        {"task": "longer", "prompt": "Why is it so? And what then?", "reference": 1},
    ]
    kept, dropped = filter_tasks(rows, tests=tests)
    assert [task.id for task in kept] == ["12"]
    assert all(one.reason == "contaminated" for one in dropped)
    assert "shares 'two three four" in dropped[0].why
    assert [task.id for task in filter_tasks(rows, FilterRules(ngram=12), tests)[0]] == []
    assert [task.id for task in filter_tasks(rows, tests=tests[2:])[0]] == [
        "13",
        "12",
        "short",
        "longer",
    ]


TEXTS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=8), max_size=5)


@given(TEXTS, TEXTS, st.integers(1, 4))
def test_contamination_is_a_run_of_words_in_common(prompts, tests, ngram):
    """Every run of a prompt held against every run of every test that is long enough to have one."""

    def runs(words):
        return {tuple(words[i : i + ngram]) for i in range(len(words) - ngram + 1)}

    tests = [test for test in tests if len(test) >= ngram]
    overlap = TestSetOverlap([" ".join(test) for test in tests], ngram)
    found = list(overlap.find([" ".join(words) for words in prompts]))
    in_tests = set().union(*map(runs, tests))
    assert [one is not None for one in found] == [bool(runs(p) & in_tests) for p in prompts]


def test_a_test_is_found_behind_an_instruction():
    """After a template, as one of the messages, and in a script without spaces; a longer sum is another problem."""
    chinese = "小明有三个苹果，小红给了他两个苹果，请问小明现在有几个？"
    rows = [
        {
            "id": "form",
            "prompt": "Compute $\\sin 60^\\circ$.\n\nPut your answer in \\boxed{}.",
            "reference": 1,
        },
        {"id": "sum", "prompt": "What is 2 + 2 * 5?", "reference": 12},
        {
            "id": "chat",
            "prompt": [{"role": "system", "content": "Be brief."}, {"content": "Why so?"}],
            "reference": 1,
        },
        {"id": "chinese", "prompt": f"题目：{chinese}请一步一步思考。", "reference": 1},
    ]
    tests = ["Compute $\\sin 60^\\circ$.", "What is 2 + 2?", "Why so?", chinese]
    kept, dropped = filter_tasks(rows, tests=tests)
    assert [task.id for task in kept] == ["sum"]
    assert [(one.task.id, one.reason) for one in dropped] == [
        (name, "contaminated") for name in ("form", "chat", "chinese")
    ]


def test_a_repeated_prompt_is_one_text_among_those_that_share():
    """Eleven copies of a test are no instruction that eleven tasks end with."""
    rows = [{"prompt": f"Question: {' '.join(WORDS)}", "reference": 1}] * 11
    assert not filter_tasks(rows, tests=[" ".join(WORDS)])[0]


def test_an_instruction_that_all_prompts_end_with_is_no_contamination():
    """13 words that stand in more than ten tasks say nothing about one of them (arXiv:2005.14165, C)."""
    tail = "Reason step by step and then put the final number into a box please."
    texts = [f"Task {i}. {tail}" for i in range(12)]
    assert list(TestSetOverlap([f"A test. {tail}"]).find(texts)) == [None] * 12
    assert None not in list(TestSetOverlap([f"A test. {tail}"]).find(texts[:3]))


def test_near_duplicates_are_told_from_neighbours():
    """Of 16 words with one changed at the end, 11 of 13 five-grams are shared: 0.846 of them all. In the middle: 7."""
    words = [f"w{i}" for i in range(16)]
    end, middle = [*words[:-1], "x"], [*words[:8], "x", *words[9:]]
    texts = [" ".join(words), " ".join(end), " ".join(middle), " ".join(words)]
    assert list(near_duplicates(texts, 0.8)) == [(0, 1)]
    assert list(near_duplicates(texts, 0.3)) == [(0, 1), (0, 2)]


def test_a_cluster_of_many_near_duplicates_is_found():
    """Twelve texts of 40 words and one of their own: 36 of 38 five-grams of any two, 0.947."""
    texts = [" ".join([*(f"w{i}" for i in range(40)), f"x{i}"]) for i in range(12)]
    assert list(near_duplicates(texts)) == [(0, i) for i in range(1, 12)]
    tail = "Reason step by step and then put the final number into a box please."
    asked = [
        " ".join(f"{word}{i}" for word in ("how", "many", "in", "a")) + f". {tail}"
        for i in range(12)
    ]
    assert not list(near_duplicates(asked))


DIFFERENT = [
    ("Compute (2+3)*4", "Compute 2+(3*4)"),
    ("What is 5!?", "What is 5?"),
    ("Find |A ∪ B|", "Find |A ∩ B|"),
    ("What is 2³?", "What is 23?"),
    ("Find f'(2).", "Find f(2)."),
    ("Is x₂ = 3.5?", "Is x2 = 3 5?"),
    ("🙂🙂", "🚀"),
    ("Solve:\n#.@\n.$.", "Solve:\n#.@\n.$#"),
    ("Solve:\n# #", "Solve:\n## "),
]


@pytest.mark.parametrize("pair", DIFFERENT)
def test_what_tells_problems_apart_is_no_punctuation(pair: tuple[str, str]):
    """Brackets, signs, a factorial, a prime, an exponent: each makes another problem."""
    assert fold_text(pair[0]) != fold_text(pair[1])
    assert (
        len(filter_tasks([{"prompt": text, "reference": i} for i, text in enumerate(pair)])[0]) == 2
    )


@pytest.mark.parametrize(
    "pair",
    [
        ("Tom said 'stop', then left.", "Tom said stop then left"),
        ("What's it?", "What’s it ?!"),
        ("x = 1, y = 2?", "x=1, y=2"),
        ("−3 is “less”", '-3 is "less".'),
    ],
)
def test_light_punctuation_and_typography_make_no_difference(pair: tuple[str, str]):
    """The same problem, typed by two people."""
    assert fold_text(pair[0]) == fold_text(pair[1])


TYPED = st.tuples(
    st.sampled_from([*WORDS, "3", "+", "x"]),
    st.sampled_from([str.lower, str.upper, str.title]),
    st.sampled_from([" ", "  ", "\n", "\t "]),
)


@given(st.lists(TYPED, max_size=6), st.sampled_from(["", ".", "?", " ?!", ","]))
def test_a_prompt_typed_otherwise_folds_alike(words, mark):
    """Case and white space drawn for each word, and a mark behind the last one."""
    typed = "".join(case(word) + space for word, case, space in words)
    assert fold_text(f"{typed}End{mark}") == (*(word for word, _, _ in words), "end")


def test_words_and_signs_are_told_apart():
    """3 + 4 is not 3 - 4, and full-width digits are digits."""
    assert fold_text("Is ３ + 4 = 7?") == ("is", "3", "+", "4", "=", "7")


def test_rows_that_bring_their_reference_are_told_apart_by_it():
    """`rlvr score` calls them all "row"; their ids become unique, as an environment's have to be."""
    rows = [
        {"task": "row", "prompt": f"{i}?", "reference": i, "outcome": "correct"} for i in (1, 2, 2)
    ]
    kept, _ = filter_tasks(rows)
    assert [(task.id, task.scored) for task in kept] == [("row#1", 1), ("row#2", 2)]


def test_tasks_of_one_prompt_keep_their_rollouts():
    """Two data sets may ask the same; a rate of both together belongs to neither."""
    rows = [*rollouts("a", "cc", "P"), *rollouts("b", "ww", "P")]
    kept, _ = filter_tasks(rows, FilterRules(duplicates=False))
    assert [(task.id, task.correct, task.scored) for task in kept] == [("a", 2, 2), ("b", 0, 2)]


def test_ids_become_unique_whatever_they_were():
    """Also where a number would make one that is there, and each reason stays with its task."""
    rows = [
        {"id": name, "prompt": text, "reference": 1}
        for name, text in zip(("a", "a", "a#2"), "xyz", strict=True)
    ]
    kept, dropped = filter_tasks(rows, tests=["y"])
    assert [task.id for task in kept] == ["a#1", "a#2"]
    assert [(one.task.prompt, one.task.id) for one in dropped] == [("y", "a#2+")]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "a#1", "a#2", "a#2+", "b"]), st.integers(0, 9)), max_size=7
    )
)
def test_a_second_filter_changes_nothing(names: list[tuple[str, int]]):
    """Ids are unique after the first, and what was kept is kept, in its order and with its id."""
    rows = [{"id": name, "prompt": f"{n}?", "reference": n} for name, n in names]
    once = [task.row() for task in filter_tasks(rows)[0]]
    assert len({row["id"] for row in once}) == len(once)
    assert [row["reference"] for row in once] == list(dict.fromkeys(n for _, n in names))
    again, dropped = filter_tasks(once)
    assert ([task.row() for task in again], dropped) == (once, [])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"outcome": None}, "row 1: the outcome is None; it must be one of 'correct'"),
        ({"outcome": "pass"}, "row 1: the outcome is 'pass'"),
        ({"meta": "abc"}, "row 1: meta is str 'abc'; it must be an object"),
        ({"prompt": 7}, "row 1: the prompt is int 7; it must be a text, or a list of messages"),
        ({"prompt": [{"role": "user"}]}, "it must be a text, or a list of messages with 'content'"),
    ],
)
def test_a_bad_row_is_one_clear_error(bad: dict, message: str):
    """Row, value and rule."""
    with pytest.raises(rlvr.DataError, match=re.escape(message)):
        filter_tasks([{"prompt": "p", "reference": 1, **bad}])


def test_a_row_that_is_left_out_is_no_task():
    """The rows of its task that can be used are counted, and nothing else."""
    good = rollouts("a", "cw")
    out = []
    [kept] = filter_rows(
        [good[0] | {"meta": 5}, *good], left_out=lambda line, why: out.append(line.number)
    )
    assert (kept.id, kept.correct, kept.scored, out) == ("a", 1, 2, [1])


def test_prompts_of_another_name_have_to_be_named():
    """Nothing is held against a test set unseen."""
    rows = [{"question": "Why is it so?", "reference": 1}]
    with pytest.raises(rlvr.DataError, match=r"row 1 has no column 'prompt'.*--prompt-column"):
        filter_tasks(rows, tests=["Why is it so?"])
    with pytest.raises(rlvr.DataError, match="row 1 has an empty prompt"):
        filter_tasks([{"prompt": "", "reference": 1}], tests=["Why is it so?"])
    assert not filter_tasks(rows, tests=["Why is it so?"], prompt="question")[0]
    assert filter_tasks(rows, FilterRules(duplicates=False))[0]


def test_what_is_known_of_a_task_stays_with_it():
    """Its columns, flat, as `from_rows` reads them; and a second filter keeps the rates of the first."""
    rows = [
        {
            "id": "a",
            "prompt": "p",
            "reference": 1,
            "level": 3,
            "meta": {"subject": "algebra", "id": "other"},
        }
    ]
    [task], _ = filter_tasks(rows)
    assert task.row() == {
        "id": "a",
        "prompt": "p",
        "reference": 1,
        "level": 3,
        "subject": "algebra",
    }
    [scored], _ = filter_tasks(
        [{**rows[0], "task": "a", "outcome": "correct", "completion": "1", "total": 1.0}]
    )
    [again], _ = filter_tasks([scored.row()])
    assert again.row() == scored.row()
    assert (again.row()["pass_rate"], again.row()["level"], "completion" in again.row()) == (
        1.0,
        3,
        False,
    )


def test_messages_are_prompts_too():
    """Their texts are what is compared."""
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    rows = [{"id": name, "prompt": prompt, "reference": 1} for name in ("a", "b")]
    [task], [gone] = filter_tasks(rows)
    assert (task.id, task.prompt) == ("a", prompt)
    assert (gone.task.id, gone.reason) == ("b", "duplicate")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"min_rate": 0.9, "max_rate": 0.1},
            "rates from 0.9 to 0.1: give 0 <= min_rate <= max_rate <= 1",
        ),
        ({"max_rate": float("nan")}, "rates from 0.0 to nan"),
        ({"min_n": -1}, "min_n is -1"),
        ({"by": "chance"}, "by is 'chance'"),
        ({"near": 0.0}, "near is 0.0"),
        ({"ngram": 0}, "ngram is 0"),
        ({"min_strength": 2}, "min_strength is 2"),
        ({"min_strength": 0.5}, "go together"),
    ],
)
def test_a_bad_limit_is_one_clear_error(given: dict, message: str):
    """Value, rule and fix."""
    with pytest.raises(rlvr.UsageError, match=message):
        FilterRules(**given)


def _report(tmp_path, **strengths):
    """A report with 8 wrong works a task; None for an untested one."""
    records = [
        {
            "task": task,
            "state": "untested" if value is None else "strong" if value == 1 else "weak",
            "strength": value,
            "interval": None if value is None else list(wilson(round(8 * value), 8)),
            "reference_digest": digest_of_reference(f"{task}'s"),
        }
        for task, value in strengths.items()
    ]
    path = tmp_path / "strength.json"
    path.write_text(json.dumps({"report": "strength", "tasks": records}))
    return read_strengths(path)


@pytest.mark.parametrize(
    ("by", "kept_ids"),
    [("rate", ["strong"]), ("interval", ["strong", "middle"])],
)
def test_weak_and_untested_tasks_are_dropped(tmp_path, by, kept_ids):
    """7 of 8 refused lie below 0.9 with an interval up to 0.98; 4 of 8 with one up to 0.78."""
    report = _report(tmp_path, strong=1.0, middle=0.875, weak=0.5, untested=None)
    rows = [{"id": name, "prompt": f"{name}?", "reference": f"{name}'s"} for name in
            ("strong", "middle", "weak", "untested", "unheard")]  # fmt: skip
    rules = FilterRules(by=by, strengths=report, min_strength=0.9)
    kept, dropped = filter_tasks(rows, rules)
    assert [task.id for task in kept] == kept_ids
    assert {one.reason for one in dropped} == {"too-weak", "untested"}
    assert [one.why for one in dropped if one.task.id == "weak"] == [
        "too-weak: strength 0.500, interval [0.215, 0.785]"
    ]


def test_a_report_of_other_data_is_refused(tmp_path):
    """The same id with another reference; and a file that is no report."""
    rules = FilterRules(strengths=_report(tmp_path, a=1.0), min_strength=0.5)
    with pytest.raises(rlvr.DataError, match="of other data: its task 'a' has another reference"):
        filter_tasks([{"id": "a", "prompt": "a?", "reference": "b's"}], rules)
    other = tmp_path / "other.json"
    for text in ("[]", "{", '{"tasks": [{"task": "a"}]}'):
        other.write_text(text)
        with pytest.raises(rlvr.DataError, match="no report of rlvr strength"):
            read_strengths(other)


def test_rates_take_rollouts():
    """Tasks alone have none, and a row without a reference is neither."""
    with pytest.raises(rlvr.DataError, match="no row has an outcome"):
        filter_tasks([{"prompt": "1?", "reference": 1}], FilterRules(min_rate=0.1))
    with pytest.raises(rlvr.DataError, match="row 1 has no column 'reference'"):
        filter_tasks([{"prompt": "1?"}])


def test_what_is_kept_is_an_environment():
    """The columns that `from_rows` reads by default; the rest is its meta."""
    kept, _ = filter_tasks(rollouts("a", "cw"))
    rows = [json.loads(json.dumps(task.row())) for task in kept]
    env = rlvr.Environment.from_rows(
        rows, verifier=lambda completion, reference: completion == reference
    )
    assert (env.task(0).id, env.task(0).prompt, env.task(0).reference) == ("a", "What is a?", "1")
    assert env.task(0).meta["pass_rate"] == 0.5


# ------------------------------------------------------------------------------------- many prompts


def prompts(count: int) -> list[str]:
    """Some alike, some the same, some with an instruction that many have; repeatable."""
    rng = random.Random(0)
    made: list[str] = []
    for _ in range(count):
        words = [f"w{rng.randrange(300)}" for _ in range(rng.randint(1, 30))]
        if made and rng.random() < 0.5:
            words = rng.choice(made).split()
            for _ in range(rng.randint(0, 2)):
                words[rng.randrange(len(words))] = "other"
        made.append(
            " ".join(words) + (" and put the answer in a box please" if rng.random() < 0.3 else "")
        )
    return made


def grams_of(text: str) -> set[tuple[str, ...]]:
    return {fold_text(text)[i : i + 5] for i in range(len(fold_text(text)) - 4)}


def test_near_duplicates_are_those_of_the_definition():
    """Each pair is compared by hand: over rare 5-grams or over all; the earlier one is the one that shares most."""
    texts = list(dict.fromkeys(prompts(150)))
    grams = [grams_of(text) for text in texts]
    counts = Counter(gram for own in grams for gram in own)
    assert max(counts.values()) > 10
    rare = [{gram for gram in own if counts[gram] <= 10} for own in grams]

    def enough(i: int, j: int, least: float) -> bool:
        over_rare = bool(rare[i] & rare[j]) and len(rare[i] & rare[j]) >= least * len(
            rare[i] | rare[j]
        )
        return (
            over_rare or len(grams[i] & grams[j]) >= (1 + least) / 2 * len(grams[i] | grams[j]) > 0
        )

    for least in (0.3, 0.6, 0.9):
        found = dict(map(reversed, near_duplicates(texts, least)))
        assert all(
            earlier < later and enough(earlier, later, least) for later, earlier in found.items()
        )
        for later in range(len(texts)):
            like = [i for i in range(later) if rare[i] & rare[later] and enough(i, later, least)]
            assert not like or later in found


def test_pairs_do_not_depend_on_how_tables_are_cut(monkeypatch):
    """As for a million prompts: sorted in several passes, compared block by block."""
    texts = prompts(400)
    whole = list(near_duplicates(texts, 0.6))
    assert len(whole) > 20
    for name, size in (("_SORTED", 500), ("_READ", 100), ("_BLOCK", 70)):
        monkeypatch.setattr(f"rlvr.data.grams.{name}", size)
    assert list(near_duplicates(iter(texts), 0.6)) == whole


def test_results_do_not_depend_on_the_number_of_processes(monkeypatch):
    monkeypatch.setattr("rlvr.data.parallel._TEXTS", 30)
    monkeypatch.setattr("rlvr.data.parallel._HERE", 1)
    texts = prompts(400)
    rows = [{"prompt": text, "reference": i % 2} for i, text in enumerate(texts)]
    tests = [texts[7], texts[300], *(" ".join(text.split()[3:18]) for text in texts[100:110])]
    rules = FilterRules(near=0.7)
    said = [filter_tasks(rows, rules, tests, processes=processes) for processes in (0, 1)]
    here, there = ([[one.row() for one in part] for part in parts] for parts in said)
    assert here == there
    assert {one.reason for one in said[0][1]} == {"contaminated", "duplicate", "near-duplicate"}
    assert list(near_duplicates(texts, processes=0)) == list(near_duplicates(texts, processes=2))
    with pytest.raises(rlvr.UsageError, match="processes"):
        list(near_duplicates(texts, processes=-1))


def test_long_prompts_are_dropped():
    """Messages count together, with the line ends between them: 5 + 1 + 5 characters."""
    rows = [{"prompt": "x" * n, "reference": n} for n in (10, 11)]
    rows += [
        {
            "prompt": [{"role": "user", "content": "y" * 5}, {"role": "user", "content": "z" * 5}],
            "reference": 0,
        }
    ]
    kept, dropped = filter_tasks(rows, FilterRules(max_characters=10))
    assert [task.reference for task in kept] == [10]
    assert [one.why for one in dropped] == ["too-long: 11 characters"] * 2
    with pytest.raises(rlvr.UsageError, match="max_characters"):
        FilterRules(max_characters=0)


@pytest.fixture
def tokenizer(tmp_path):
    """A model's folder whose tokenizer takes words apart, and cuts texts to two of them unless told not to."""
    words = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.enable_truncation(2)
    words.enable_padding(length=50)
    words.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize("processes", [0, 1])
def test_lengths_may_be_counted_in_tokens(tokenizer, monkeypatch, processes):
    """ "1 2 3 4?" has five with this tokenizer; messages count together; a prompt that is empty has none."""
    monkeypatch.setattr("rlvr.data.parallel._HERE", 1)
    monkeypatch.setattr("rlvr.data.parallel._TEXTS", 2)
    rows = [
        {"prompt": text, "reference": n}
        for n, text in enumerate(("1 2 3", "1 2 3 4?", "", "a b c d", "a " * 9))
    ]
    rows += [
        {
            "prompt": [{"role": "user", "content": "a b"}, {"role": "user", "content": "c d e"}],
            "reference": 5,
        }
    ]
    for name in (tokenizer, tokenizer / "tokenizer.json"):
        rules = FilterRules(max_tokens=4, tokenizer=str(name))
        kept, dropped = filter_tasks(rows, rules, processes=processes)
        assert [task.reference for task in kept] == [0, 2, 3]
        assert [one.why for one in dropped] == [
            "too-long: 5 tokens",
            "too-long: 9 tokens",
            "too-long: 5 tokens",
        ]


def test_a_tokenizer_that_cannot_be_had_is_one_clear_error(tmp_path, monkeypatch):
    """Before any row is read."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "tokenizer.json").write_text("{}")
    for name in (str(tmp_path), "owner/none", "no/such/folder"):
        with pytest.raises(
            rlvr.DataError, match=r"tokenizer .*; give a file tokenizer\.json, a model's folder"
        ):
            filter_tasks(iter([None]), FilterRules(max_tokens=4, tokenizer=name))
    for alone in ({"max_tokens": 4}, {"tokenizer": "x"}):
        with pytest.raises(rlvr.UsageError, match="max_tokens and tokenizer go together"):
            FilterRules(**alone)


def test_tasks_come_one_by_one_and_hold_what_their_rows_held():
    """Also what pickle alone cannot send, such as a function in a row of the caller's."""
    rows = [
        {"prompt": [{"role": "user", "content": f"{i}?"}], "reference": (i, 1.5), "f": lambda: 3}
        for i in range(3)
    ]
    first, *rest = filter_rows(rows, processes=0)
    assert (first.id, first.prompt, first.reference, first.meta["f"]()) == (
        "row:1",
        rows[0]["prompt"],
        (0, 1.5),
        3,
    )
    assert [task.reference for task in rest] == [(1, 1.5), (2, 1.5)]
