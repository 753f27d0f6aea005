"""The scheduler: who is sampled when, what a slow environment costs, and what repeats to the last bit."""

import random
import threading
import time

import pytest

from rlvr.collect import Sampling, ScriptedSampler
from rlvr.collect.background import BackgroundCalls
from rlvr.collect.scheduler import run
from rlvr.samplers.protocol import Request
from tests.collect.collecting import Count, collector, counts
from tests.rewards.parts import refusal

PLAIN = Sampling(max_tokens=8)


class Stepping(ScriptedSampler):
    """Counts its steps: each request is finished after as many as its completion has tokens."""

    def __init__(self, script):
        super().__init__(script)
        self.steps, self.running, self.log = 0, [], []

    def submit(self, request):
        self.log.append((self.steps, request.id))
        super().submit(request)

    def poll(self):
        self.running += [
            (self.steps + len(sample.completion_ids), name, sample)
            for name, sample in super().poll()
        ]
        self.steps += 1
        done = [(name, sample) for until, name, sample in self.running if until <= self.steps]
        self.running = [one for one in self.running if one[0] > self.steps]
        return done


def talk(background, number, texts, waits):
    """A play of several turns, whose environment takes a while for each reply."""
    heard = []
    for turn in range(texts):
        sample = yield Request((number, turn), (120,), PLAIN, 100 * number + turn, 8)
        heard.append(sample.text)
        reply = yield background.submit(lambda: time.sleep(random.uniform(0, waits)) or "reply")
        assert reply == "reply"
    return heard


def played(schedule, waits, number=12, sampler=None):
    sampler = sampler or Stepping(lambda prompt, g, seed: "x" * (seed % 6))
    background = BackgroundCalls(8)
    plays = [talk(background, i, 1 + i % 3, waits) for i in range(number)]
    return dict(run(plays, sampler, background, schedule)), sampler


def test_with_tokens_a_request_comes_at_the_same_step_whatever_the_environment_takes():
    """Replies at once, or after up to 20 ms in any order: the same requests at the same decode steps."""
    (at_once, quick), (later, slow) = played("tokens", 0), played("tokens", 0.02)
    assert at_once == later
    assert quick.log == slow.log
    assert [len(heard) for _, heard in sorted(at_once.items())] == [1, 2, 3] * 4


def test_with_ready_an_episode_goes_on_while_another_one_waits():
    """The reply to the first is held back until the second has finished all its turns."""
    finished = threading.Event()
    background = BackgroundCalls(2)

    def held():
        yield Request("held", (120,), PLAIN, 0, 8)
        assert (yield background.submit(finished.wait, 30)), "it was waited for"
        yield Request("held again", (120,), PLAIN, 0, 8)

    def free():
        for turn in range(5):
            yield Request(("free", turn), (120,), PLAIN, 0, 8)
            yield background.submit(int)
        finished.set()

    assert sorted(
        number for number, _ in run([held(), free()], ScriptedSampler(["x"]), background, "ready")
    ) == [0, 1]


def test_no_more_requests_than_a_sampler_can_use_are_with_it(monkeypatch):
    """Plays of a large evaluation begin when others end; all of them are played."""
    monkeypatch.setattr("rlvr.collect.scheduler._IN_FLIGHT", 5)
    most = []

    class Noting(Stepping):
        def poll(self):
            finished = super().poll()
            most.append(len(self.running) + len(finished))
            return finished

    found, _ = played("tokens", 0, sampler=Noting(lambda prompt, g, seed: "x" * (seed % 6)))
    assert len(found) == 12
    assert max(most) <= 5


def test_what_is_left_is_aborted_when_a_play_fails():
    """And when the caller stops: the sampler does not go on with what is not wanted."""
    background = BackgroundCalls(1)

    def failing():
        yield Request("a", (120,), PLAIN, 0, 8)
        raise RuntimeError("as asked")

    def long():
        yield Request("b", (120,), PLAIN, 0, 8)

    class Noting(Stepping):
        def abort(self, ids):
            self.dropped = sorted(ids)

    sampler = Noting(lambda prompt, g, seed: "x")
    with pytest.raises(RuntimeError, match="as asked"):
        list(run([failing(), talk(background, 1, 3, 0)], sampler, background, "tokens"))
    assert sampler.dropped == [(1, 0)]
    sampler = Noting(lambda prompt, g, seed: "x" * (seed % 7))
    plays = run([long(), talk(background, 1, 3, 0)], sampler, background, "tokens")
    assert next(plays)[0] == 0
    plays.close()
    assert sampler.dropped == [(1, 0)]


def test_a_schedule_that_cannot_be_is_refused():
    """One that is unknown, and one that needs a sampler that counts."""
    assert refusal(lambda: collector(schedule="token")).startswith(
        "schedule is 'token'; it must be one of 'ready',"
    )
    said = refusal(lambda: collector(schedule="tokens"))
    assert said == "schedule is 'tokens', and ScriptedSampler does not count its steps; use 'ready'"
    with collector() as one, collector(script=Stepping(["0"])) as counting:
        assert (one.groups.schedule, counting.groups.schedule) == ("ready", "tokens")


# ------------------------------------------------------------------------------------------ time


class Sleepy(Count):
    """Its user does not come back from "sleep"."""

    def user(self, task, transcript):
        if transcript[-1]["content"] == "sleep":
            released.wait(30)
        return super().user(task, transcript)


released = threading.Event()


@pytest.mark.parametrize("counting", [False, True])
def test_a_user_over_its_limit_is_wrong_and_stalls_nothing(counting, monkeypatch):
    """The policy chose the turn, so it must not be UNSCORED."""
    monkeypatch.setattr("rlvr.environment.tool_episode._OWN_S", 0.5)
    monkeypatch.setattr("rlvr.environment.tool_episode._GRACE_S", 0.1)

    def script(prompt, rollout, seed):
        return "sleep" if rollout == 1 and "On!" in prompt else counts(prompt, rollout, seed)

    sampler = Stepping(script) if counting else ScriptedSampler(script)
    released.clear()
    with collector(Sleepy(call_seconds=0.1), sampler, group_size=3) as one:
        groups = [group for group in one.collect(4).groups if len(group.rollouts[0].turns) > 1]
    released.set()
    assert groups
    for group in groups:
        slow = group.rollouts[1].score
        assert (slow.verdict.outcome, slow.total) == ("wrong", 0.0)
        assert slow.verdict.why == "time limit: user of Sleepy took more than 0.5 s"
        assert not group.rollouts[1].truncated
        assert [group.rollouts[g].score.total for g in (0, 2)] == [1.0, 1.0]


class Together(Count):
    """Its first user waits until 64 episodes are in theirs."""

    turns: int = 2
    barrier = threading.Barrier(64)

    def user(self, task, transcript):
        self.barrier.wait(60)
        return "On!"


def test_slow_steps_do_not_wait_for_each_other():
    """64 episodes step side by side; with eight threads the steps of all would take eight times as long."""
    with collector(Together(), ["x"], group_size=8) as one:
        assert one.collect(8).stats["unscored"] == 0


@pytest.mark.parametrize("loses", ["one of them", "all"])
def test_a_sampler_that_loses_a_request_does_not_hang_for_ever(monkeypatch, loses):
    """It counts no steps, so only time can tell; the error names the request."""
    monkeypatch.setattr("rlvr.collect.scheduler._SLACK_S", 0.05)
    monkeypatch.setattr("rlvr.collect.scheduler._SILENT_S", 0.2)

    class Losing(ScriptedSampler):
        def submit(self, request):
            if loses == "one of them" and request.id != (2, 0):
                super().submit(request)

    said = refusal(lambda: played("ready", 0, number=4, sampler=Losing(["x"])))
    assert "Losing has returned nothing for 0 s" in said
    assert (
        f"requests are open, such as {(2, 0) if loses == 'one of them' else (0, 0)}: it has lost them"
        in said
    )


def test_a_sampler_that_takes_its_time_is_waited_for(monkeypatch):
    """Ten times what its slowest completion took, for a completion at its limit."""
    monkeypatch.setattr("rlvr.collect.scheduler._SLACK_S", 0.0)
    waiting = []

    class Slow(ScriptedSampler):
        def poll(self):
            waiting.append(None)
            return super().poll() if len(waiting) % 5 == 0 else time.sleep(0.004) or []

    found, _ = played("ready", 0, number=4, sampler=Slow(["xx"]))
    assert len(found) == 4


def test_a_thread_does_one_call_after_another():
    """A thread of its own for each call costs four times what the call does."""
    background = BackgroundCalls(2)
    threads = {background.submit(threading.current_thread).result() for _ in range(50)}
    assert len(threads) < 50
    background.close()
    for thread in threads:
        thread.join()
