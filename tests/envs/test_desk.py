"""Errands at a desk: what is graded is the database at the end, and what the user knows."""

import pytest

import rlvr
from rlvr.envs.desk import Desk
from rlvr.envs.desk_worlds import WORLDS
from rlvr.episode import Ask, EpisodeTurn, PolicyTurn


def played(env, task, turns):
    with env.open(task) as episode:
        for turn in turns:
            if episode.reply(PolicyTurn(turn) if isinstance(turn, str) else turn) is None:
                break
        episode.finish()
    return episode.record, env.score(task, episode.completion()).verdict


def drawn(world, words, count=100):
    """The first task of a world whose opening has these words."""
    env = Desk(world=world)
    tasks = (env.task(index) for index in range(count))
    return env, next(
        task for task in tasks if words in task.prompt.rpartition("The user writes")[2]
    )


@pytest.mark.parametrize("world", WORLDS)
def test_what_is_wanted_is_paid_and_neither_idling_nor_refusing(world):
    """Refusing always by one rule earns what that rule forbids, at most one task in ten."""
    env, count = Desk(world=world), 200
    codes = ("", *WORLDS[world].RULES)
    paid = dict.fromkeys(codes, 0)
    for index in range(count):
        task = env.task(index)
        _, verdict = played(env, task, env.example_episode(task))
        assert verdict.correct, (task.id, verdict.why)
        for code in codes:
            turns = (EpisodeTurn(f"Done. {code}"),)
            record = rlvr.EpisodeRecord(turns, final={"changes": {}, "sent": []})
            paid[code] += env.verify(task, record).correct
    assert paid[""] == 0
    assert max(paid.values()) <= count / 10, paid


def test_worlds_have_enough_tools_and_splits_differ():
    """Eight to fifteen tools; the same index of another split is another task."""
    for index, world in enumerate(WORLDS):
        env = Desk()
        task = env.task(index)
        assert task.meta["world"] == world
        with env.open(task) as episode:
            assert 8 <= len(episode.tools) <= 15
    assert Desk(split="test").task(0).prompt != Desk().task(0).prompt


def test_a_side_effect_is_wrong():
    """All that is wanted is done, and one thing more."""
    env, task = drawn("shop", "do not want the")
    turns = env.example_episode(task)
    other = next(key for key in task.meta["tables"]["orders"] if key != turns[0].arguments["order"])
    more = Ask("change_address", {"order": other, "address": "Elsewhere 1"})
    assert played(env, task, [more, *turns])[1].why.startswith("other-state")


def test_the_user_has_to_be_told_and_nothing_else():
    """The amount; many amounts are no answer, and a code of a rule says that it was refused."""
    env, task = drawn("shop", "do not want the")
    action, answer = env.example_episode(task)
    other = next(one for one in task.reference["untold"] if "." in one)
    for said, why in (
        ("Done.", "not-told"),
        (f"{other} or {answer}", "told-too-much"),
        (f"{answer} by rule S1", "told-too-much"),
        (f"{answer} Or is it 1.23?", "told-otherwise"),
        (f"It was 1.23, now it is {answer.split()[-1]}", "done-as-wanted"),
        (answer.replace(".", "", 1), "done-as-wanted"),
    ):
        assert played(env, task, [action, said])[1].why.startswith(why), said


def test_a_list_of_candidates_buys_no_answer():
    """Of the numbers that are told the last one counts, over all turns; of reasons none but the right one."""
    env = Desk(world="files")
    paid = 0
    for index in range(120):
        task = env.task(index)
        for last in (0, 39, 99):
            turns = (EpisodeTurn(" ".join(map(str, range(40)))), EpisodeTurn(f"It is {last}."))
            record = rlvr.EpisodeRecord(turns, final={"changes": {}, "sent": []})
            paid += env.verify(task, record).correct
    assert paid <= 3
    env, task = drawn("office", "Cancel the event")
    *actions, last = env.example_episode(task)
    every = "It is a strike, the flood, an illness or a power cut."
    hedged = [
        Ask(one.name, {**one.arguments, **({"text": every} if "text" in one.arguments else {})})
        for one in actions
    ]
    assert played(env, task, [*hedged, last])[1].why.startswith("told-too-much")


def test_the_user_answers_what_it_is_asked():
    """By the words of a question; it leaves after a turn without one."""
    env, task = drawn("shop", "new address")
    record, _ = played(env, task, ["What is your e-mail address?", "And what colour?", "Bye."])
    [first, second, last] = [turn.user for turn in record.turns]
    assert first.count("address is") == 2
    assert (second, last) == ("That is all I know.", None)
    assert env.user(task, record.messages[:1]) == first


def test_mails_may_go_out_in_any_order_and_have_to_say_why():
    """Who gets one is checked, and the reason; the words around it are free."""
    env, task = drawn("office", "Cancel the event")
    *actions, last = env.example_episode(task)
    assert played(env, task, [*actions[::-1], last])[1].correct
    silent = [
        Ask(
            one.name,
            {**one.arguments, "text": "Sorry."} if "text" in one.arguments else one.arguments,
        )
        for one in actions
    ]
    assert played(env, task, [*silent, last])[1].why.startswith("not-written")
    assert played(env, task, [*actions[:-1], last])[1].why.startswith("other-state")


def test_options_that_are_none_are_refused():
    with pytest.raises(rlvr.UsageError, match="world"):
        Desk(world="bank")
