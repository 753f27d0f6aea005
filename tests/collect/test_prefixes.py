"""Values of prefixes: K fresh completions from each step of a rollout, as VinePPO wants them."""

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlvr
from rlvr.collect import END, Sampling, ScriptedSampler, step_boundaries
from rlvr.collect.prefixes import prefix_values_and_costs
from tests.collect.collecting import Backwards, collector
from tests.environments import Siblings, Trials
from tests.rewards.parts import refusal


class LastLine(Trials):
    """The answer is the last line."""

    def verify(self, task, completion):
        return super().verify(task, completion.rpartition("\n")[2])


def wander(prompt, rollout, seed):
    """Of task 0.  From the prompt three of four forks are right; after "a" one; after "b" none, and one is lost."""
    if prompt.endswith("b\n"):
        return ["no", "0@raise", "no", "no"][rollout % 4]
    if prompt.endswith("a\n"):
        return ["0", "no", "b\n1", "no"][rollout % 4]
    return ["a\nb\nno", "0", "a\n0", "0"][rollout % 4]


def one_group(env=None, script=wander, **settings):
    """A collector and the rollouts of its first group."""
    one = collector(LastLine() if env is None else env, script, **settings)
    return one, one.collect(1).groups[0].rollouts


def test_a_fork_is_read_as_one_text():
    """Decoders of SentencePiece drop the space a text begins with: the halves apart would run two words together."""

    class Pieces(ScriptedSampler):
        def decode(self, completion_ids):
            return super().decode(completion_ids).removeprefix("_").replace("_", " ")

    class Heard(Trials):
        said: ClassVar[list[str]] = []

        def verify(self, task, completion):
            self.said.append(completion)
            return super().verify(task, completion)

    with collector(
        Heard(),
        Pieces(lambda prompt, rollout, seed: "_so." if "it" in prompt else "_it_is"),
        group_size=2,
    ) as one:
        rollouts = one.collect(1).groups[0].rollouts
        Heard.said.clear()
        one.prefix_values(rollouts[:1], k=1, steps=[[0, 3, len(rollouts[0].completion_ids)]])
    assert sorted(Heard.said) == ["it is", "it so."]


def test_what_forks_cost_is_told():
    """Three prefixes begin steps, the prompt and two more, from which four forks each go on; one is lost."""
    one, rollouts = one_group()
    with one:
        _, costs = prefix_values_and_costs(one.groups, rollouts[:1], k=4)
    assert (costs["forks"], costs["forks_unscored"]) == (12, 1)
    # "a\nb\nno", "0", "a\n0", "0" │ "0", "no", "b\n1", "no" │ "no", "0@raise", "no", "no"; each with its end.
    assert costs["fork_tokens"] == 7 + 2 + 4 + 2 + 2 + 3 + 4 + 3 + 3 + 8 + 3 + 3
    assert costs["scoring_s"] > 0


def test_steps_end_after_each_delimiter():
    """ "a\\nb\\nno" and its end: 7 tokens, steps of 2, 2 and 3; without a delimiter there is one."""
    one, rollouts = one_group()
    with one:
        assert rollouts[0].completion_ids == [ord("a"), 10, ord("b"), 10, ord("n"), ord("o"), END]
        assert step_boundaries(rollouts[0], one.sampler) == (0, 2, 4, 7)
        assert step_boundaries(rollouts[1], one.sampler) == (0, 2)
        assert step_boundaries(rollouts[0], one.sampler, delimiter="b") == (0, 3, 7)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n\n\nb", (0, 4, 6)),  # one break, however many lines
        ("\n", (0, 2)),
        ("", (0, 1)),
    ],
)
def test_white_space_is_no_step(text, expected):
    """K rollouts of a blank line would be paid for nothing."""
    one, [rollout] = one_group(script=[text], group_size=1)
    with one:
        assert step_boundaries(rollout, one.sampler) == expected


class Several(ScriptedSampler):
    """A sampler whose tokens are one to three characters: `PIECES` by their numbers."""

    PIECES: ClassVar = ["a", "b\n", "\n", " ", "a\na", "\n\n"]

    def decode(self, completion_ids):
        return "".join(self.PIECES[token] for token in completion_ids if token != END)


@given(st.lists(st.integers(0, 5), max_size=10))
def test_steps_end_where_lines_end(tokens):
    """Token by token: a step ends with the first token at whose end more lines have been ended."""
    sampler, ids = Several(["x"]), [*tokens, END]
    text = sampler.decode(ids)
    rollout = rlvr.Rollout(Trials().task(0), text, [1], ids, [True] * len(ids), [0.0] * len(ids), 0)
    inner = range(len(text) - len(text.lstrip()) + 1, len(text.rstrip()))
    ends = [at for at in inner if text[at - 1] == "\n" and text[at] != "\n"]
    lengths = [len(sampler.decode(ids[:count])) for count in range(len(ids) + 1)]
    expected = {next(count for count, length in enumerate(lengths) if length >= at) for at in ends}
    assert step_boundaries(rollout, sampler) == tuple(sorted({0, *expected, len(ids)}))


class Counting(ScriptedSampler):
    """A sampler that counts the tokens which it decodes."""

    decoded = 0

    def decode(self, completion_ids):
        self.decoded += len(completion_ids)
        return super().decode(completion_ids)


@pytest.mark.parametrize("words", [1, 4])
def test_ten_thousand_steps_take_linear_time(words):
    """Each token is decoded a few times, however many steps there are."""
    text = ("a" * words + "\n") * 10_000 + "b"
    sampler = Counting(["x"])
    ids = [*map(ord, text), END]
    rollout = rlvr.Rollout(Trials().task(0), text, [1], ids, [True] * len(ids), [0.0] * len(ids), 0)
    assert len(step_boundaries(rollout, sampler)) == 10_002
    assert sampler.decoded < 40 * len(ids)


class Pairs(ScriptedSampler):
    """A sampler whose tokens are two characters each: a delimiter may stand in the middle of one."""

    def decode(self, completion_ids):
        return "".join(2 * chr(token) for token in completion_ids if token != END)


def test_a_token_in_which_a_step_ends_belongs_to_it():
    """Three tokens "aa", "\\n\\n", "bb"; split after the first "\\na", which would be in the middle of a token."""
    rollout = rlvr.Rollout(
        Trials().task(0), "aa\n\nbb", [1], [97, 10, 98, END], [True] * 4, [0.0] * 4, 0
    )
    assert step_boundaries(rollout, Pairs(["x"])) == (0, 2, 4)
    assert step_boundaries(rollout, Pairs(["x"]), delimiter="a\n") == (0, 2, 4)


def test_values_are_the_mean_scores_of_forks():
    """Rollout 0, "a, b, no", by hand: 3/4 from its beginning, 1/4 after a, 0 of the 3 that could be scored after b, and
    in the end its own 0."""
    one, rollouts = one_group()
    with one:
        first, second, *_ = one.prefix_values(rollouts, k=4)
    assert first.boundaries == (0, 2, 4, 7)
    assert first.values == (0.75, 0.25, 0.0, 0.0)
    assert first.scored == (4, 4, 3, 1)
    assert (second.boundaries, second.values) == ((0, 2), (0.75, 1.0))


def test_a_fork_is_scored_with_its_prefix():
    """The environment sees the whole completion, and its length is that of the whole."""
    seen = []

    class Noting(LastLine):
        def verify(self, task, completion):
            seen.append(completion)
            return super().verify(task, completion)

    env = Noting().with_reward(rlvr.Correct() + rlvr.Overlong(max_tokens=8, cache=8))
    one, rollouts = one_group(env)
    with one:
        [first] = one.prefix_values(rollouts[:1], k=1)
    assert seen[4:] == ["a\nb\nno", "a\n0", "a\nb\nno"]
    assert first.values == (-7 / 8, 1 - 4 / 8, -7 / 8, -7 / 8)


def test_a_state_that_several_rollouts_share_is_sampled_once():
    """Four rollouts begin with the prompt, two with "a": 4 + 3 others would be the same forks again."""
    asked = []

    class Noting(ScriptedSampler):
        def submit(self, request):
            asked.append(self.decode(request.context))
            super().submit(request)

    one, rollouts = one_group(script=Noting(wander))
    with one:
        values = one.prefix_values(rollouts, k=4)
    assert asked[4:] == ["Say 0."] * 4 + ["Say 0.a\n"] * 4 + ["Say 0.a\nb\n"] * 4
    assert [v.values[0] for v in values] == [0.75] * 4
    assert values[0].values[1] == values[2].values[1] == 0.25


def test_every_fork_has_a_seed_of_its_own():
    """Three states, four forks each; none has the seed of a rollout."""
    seeds = []

    def note(prompt, rollout, seed):
        seeds.append(seed)
        return wander(prompt, rollout, seed)

    one, rollouts = one_group(script=note)
    with one:
        one.prefix_values(rollouts[:1], k=4)
    assert len(set(seeds)) == len(seeds) == 4 + 3 * 4


def test_a_fork_may_use_what_its_prefix_leaves_of_the_limit():
    """Of 8 tokens 6 are left after "a", 4 after "b": no fork says what the rollout could not have said."""
    noted = []

    class Noting(ScriptedSampler):
        def submit(self, request):
            noted.append(request.limit)
            super().submit(request)

    one, rollouts = one_group(script=Noting(wander), sampling=Sampling(max_tokens=8))
    with one:
        one.prefix_values(rollouts[:1], k=1)
    assert noted == [8] * 4 + [8, 6, 4]


def test_given_boundaries_are_taken():
    """Fixed-length steps, for example."""
    one, rollouts = one_group()
    with one:
        [values] = one.prefix_values(rollouts[:1], k=4, steps=[[0, 4, 7]])
    assert (values.boundaries, values.values) == ((0, 4, 7), (0.75, 0.0, 0.0))


@pytest.mark.parametrize("bounds", [[0, 2], [2, 7], [0, 4, 4, 7], [0, 5, 3, 7], []])
def test_boundaries_that_are_none_are_refused(bounds):
    """They must lead from 0 to T, here 7, without a step that is empty."""
    one, rollouts = one_group()
    with one:
        said = refusal(lambda: one.prefix_values(rollouts[:1], steps=[bounds]))
    assert said.endswith("they must increase from 0 to 7")


def test_where_no_fork_was_scored_there_is_no_value():
    """None, which no mean can swallow; and an unscored rollout has none at its end."""
    lost = rlvr.Score(None, {}, rlvr.Verdict("unscored", why="lost"))
    rollout = rlvr.Rollout(
        LastLine().task(0), "0", [1], [48, END], [False] * 2, [0.0] * 2, 0, score=lost
    )
    with collector(LastLine(), ["0@raise"]) as one:
        [values] = one.prefix_values([rollout], k=2)
    assert (values.values, values.scored) == ((None, None), (0, 0))


def test_forks_do_not_depend_on_order():
    """Samples that come backwards, rollouts asked for one by one: the same values."""
    script = lambda prompt, g, seed: ["0", "a\n0", "a\nb\nno", "no"][seed % 4]  # noqa: E731
    one, rollouts = one_group(script=script)
    other, _ = one_group(script=Backwards(script))
    with one, other:
        together = one.prefix_values(rollouts, k=5)
        assert [other.prefix_values([rollout], k=5)[0] for rollout in rollouts] == together
    assert len({v for values in together for v in values.values}) > 2


def test_what_cannot_be_forked_is_refused():
    """A reward that compares, no fork at all, a delimiter of nothing."""
    one, rollouts = one_group(Siblings())
    with one:
        assert "and a prefix has no group" in refusal(lambda: one.prefix_values(rollouts))
    one, rollouts = one_group()
    with one:
        assert (
            refusal(lambda: one.prefix_values(rollouts, k=0))
            == "k is 0; it must be a whole number of at least 1"
        )
        assert refusal(lambda: one.prefix_values(rollouts, steps="")).startswith(
            "steps is an empty text"
        )
