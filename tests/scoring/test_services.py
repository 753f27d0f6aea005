"""Scoring with services on other machines: the same scores in the same order, whatever dies."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn

import rlvr
from rlvr.errors import DataError, ServiceFailed, UsageError
from rlvr.http.serve import Service, ServiceLimits, app_of, listen
from rlvr.scoring.engines import Services, engine_of
from rlvr.scoring.engines.balance import Balance
from rlvr.scoring.engines.client import Client
from rlvr.scoring.identity import IDENTITY_HEADER, identity_of
from rlvr.scoring.items import Item
from rlvr.scoring.wire import decoded_item, encoded_item
from rlvr.types import Completion, Task
from tests.commands import refusal_of
from tests.environments import Configured, Siblings, Trials, right
from tests.scoring.readers import Worded
from tests.serve.serving import served


@contextmanager
def service_of(env: rlvr.Environment, *, workers: int = 1, **settings) -> Iterator[str]:
    """The address of a service in this process."""
    with (
        Service({"its own name": env}, workers=workers, **settings) as service,
        address_of(app_of(service)) as url,
    ):
        yield url


@contextmanager
def address_of(app) -> Iterator[str]:
    """The address of an application in this process."""
    with listen("127.0.0.1", 0) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def urls() -> Iterator[list[str]]:
    """Two services that serve `Trials`."""
    with ExitStack() as stack:
        yield [stack.enter_context(service_of(Trials())) for _ in range(2)]


def keys(scored) -> list[tuple]:
    return [(one.item.id, one.score) for one in scored]


def test_scores_are_those_of_the_pool(urls):
    """Whole scores, rows that cannot be used, UNSCORED ones, and columns that are passed on."""
    rows = [
        *right(*range(200)),
        {"x": 1},
        {"task": 1, "completion": "\ud800@raise"},
        {"task": 3, "completion": " "},
    ]
    said: list[list[tuple]] = [[], []]
    with rlvr.Scorer(Trials(), workers=1) as scorer:
        expected = keys(
            scorer.stream(rows, on_error=lambda number, error: said[0].append((number, str(error))))
        )
    with rlvr.Scorer(Trials(), engine=Services(urls)) as scorer:
        got = keys(
            scorer.stream(rows, on_error=lambda number, error: said[1].append((number, str(error))))
        )
        assert scorer.workers == 2
        assert scorer.score(Trials().task(4), "4").total == 1.0
    assert got == expected
    assert said[0] == said[1]


def test_groups_are_combined_here():
    """A service sees single completions; a reward that compares is computed by the scorer."""
    rows = [
        {"task": i // 4, "completion": f"{i // 4}", "length_tokens": 5 * i % 7 + 1}
        for i in range(40)
    ]
    with rlvr.Scorer(Siblings(), workers=0) as scorer:
        expected = keys(scorer.stream(rows))
    with service_of(Siblings()) as url, rlvr.Scorer(Siblings(), engine=engine_of(url)) as scorer:
        assert keys(scorer.stream(rows)) == expected


def test_the_command_gives_the_same_bytes(score, urls, tmp_path):
    """`rlvr score --scorer`: records do not say where they were made."""
    rows = right(*range(50))
    score(rows)
    whole = (tmp_path / "out.jsonl").read_bytes()
    assert "leave out one" in refusal_of(
        *score(rows, "--scorer", ",".join(urls), "--overwrite", "--workers", 2)
    )
    from rlvr.cli import main

    argv = [
        "score",
        "tests.environments:Trials",
        tmp_path / "in.jsonl",
        "-o",
        tmp_path / "out.jsonl",
        "--overwrite",
    ]
    assert main([*map(str, argv), "--scorer", ",".join(urls)]) == 0
    assert (tmp_path / "out.jsonl").read_bytes() == whole


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 400])
def test_a_service_that_dies_costs_a_retry(after):
    """SIGKILL while rows are under way: every row once, equal, by the other one; a new one at its address is found."""
    rows = right(*range(1500))
    with served() as (one, port), served() as (_, other):
        engine = Services([f"http://127.0.0.1:{port}", f"http://127.0.0.1:{other}"])
        with rlvr.Scorer(Trials(), engine=engine) as scorer:
            got = []
            for number, scored in enumerate(scorer.stream(rows)):
                if number == after:
                    one.kill()
                    one.wait()
                got.append(scored.score.verdict.answer)
            assert engine._connections.balance.left_out() in ([0], [])
    assert got == [str(i) for i in range(1500)]


def test_what_another_machine_lacks_is_said_at_the_start(urls):
    """With its address and the remedy: nothing is scored."""
    with listen("127.0.0.1", 0) as gone:
        nowhere = f"http://127.0.0.1:{gone.getsockname()[1]}"

    def refused(env: rlvr.Environment, *addresses: str) -> str:
        with (
            pytest.raises((ServiceFailed, UsageError)) as error,
            rlvr.Scorer(env, engine=Services(addresses)),
        ):
            pass
        return str(error.value)

    said = refused(Trials(), *urls, nowhere)
    assert nowhere in said
    assert "start it (rlvr serve" in said
    said = refused(Siblings(), urls[0])
    assert f"{urls[0]} serves its own name and not siblings" in said.lower()
    with service_of(Configured(size=2)) as url:
        said = refused(Configured(size=3), url)
        assert (
            f"{url} differs from this machine in settings: option size is 2 there and 3 here"
            in said
        )
        assert refused(
            Configured(size=2, split="test"), nowhere
        )  # only where the tasks come from may differ
        with rlvr.Scorer(Configured(size=2, split="test"), engine=Services(url)):
            pass
    with service_of(Trials(), api_key="long-enough-a-key") as url:
        assert "this service wants its API key" in refused(Trials(), url)


def test_a_service_with_another_environment_is_left_out(urls, monkeypatch):
    """It was started anew with another version while the scorer ran: the others do its work."""
    with service_of(Configured()) as other:
        engine = Services([urls[0], other])
        engine.open(Trials())
        with pytest.raises(UsageError, match="has this Services already"):
            engine.open(Trials())
        monkeypatch.setattr(engine, "_workers_at", lambda place, common: 1)
        engine._digests = [identity_of(Trials()).digest]
        items = [Item("x", Trials().task(i), Completion(f"{i}")) for i in range(3)]
        for _ in range(4):
            assert [seen.verdict.answer for seen in engine.observe(items)] == ["0", "1", "2"]
        assert engine._connections.balance.left_out() == [1]
        engine.close()


def test_a_request_that_is_too_much_is_split(urls):
    """By halves, down to a single row, which alone is refused."""
    with service_of(Trials(), limits=ServiceLimits(body_mib=0.02, request_rows=4)) as url:
        rows = right(*range(30))
        rows[7]["completion"] = "x" * 40_000
        refused = []
        with rlvr.Scorer(Trials(), engine=Services(url)) as scorer:
            scorer._chunk = 16
            got = keys(
                scorer.stream(
                    rows, on_error=lambda number, error: refused.append((number, str(error)))
                )
            )
    assert len(got) == 29
    [(number, why)] = refused
    assert number == 8
    assert "send fewer rows at once" in why


def test_a_quiet_service_is_not_lost(monkeypatch, tmp_path):
    """A row may take longer than the client waits for a byte: the service sends empty lines meanwhile."""
    monkeypatch.setattr("rlvr.http.serve.responses._BEAT_S", 0.05)
    gate = tmp_path / "gate"
    with service_of(Trials()) as url:
        engine = Services(url, patience_s=0, timeout_s=0.5)
        threading.Timer(1.5, lambda: gate.with_name("gate.open").touch()).start()
        with rlvr.Scorer(Trials(), engine=engine) as scorer:
            [scored] = scorer.stream([{"task": 1, "completion": f"1@await {gate}"}])
    assert scored.score.total == 1.0


def test_a_closed_scorer_says_so(urls):
    """As with the pool."""
    scorer = rlvr.Scorer(Trials(), engine=Services(urls)).warm()
    scorer.close()
    with pytest.raises(UsageError, match="closed"):
        scorer.score(Trials().task(1), "1")


def test_the_client_asks_the_other_service(urls):
    """One address of two is wrong: no error, and no row twice."""
    with listen("127.0.0.1", 0) as gone:
        nowhere = f"http://127.0.0.1:{gone.getsockname()[1]}"
    with Client([nowhere, urls[1]], batch=10) as client:
        got = client.score(None, right(*range(100)))
    assert [one.score.verdict.answer for one in got] == [str(i) for i in range(100)]


def test_services_behind_one_address_are_told_apart_by_their_answers(tmp_path, monkeypatch):
    """A balancer in front of two, of which one read the data before an edit: each answer says by what
    it was judged, before its first row and after its last."""
    words = tmp_path / "words.txt"
    words.write_text("old")
    os.utime(words, (1, 1))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    row, turns = {"task": 0, "completion": "x"}, iter([0, 1])
    with ExitStack() as stack:
        made = [Service({"its own": Worded(path=str(words))}, workers=1) for _ in range(2)]
        apps = [app_of(stack.enter_context(service)) for service in made]

        async def balancer(scope, receive, send):
            place = next(turns) if scope.get("path") == "/score" else 0
            await apps[place](scope, receive, send)

        url = stack.enter_context(address_of(balancer))
        with Client(url) as client:
            assert client.score(None, [row])[0].score.verdict.why == "old"
            first = made[0].queues["its own"].scorer.identity().whole
            words.write_text("another")
            with pytest.raises(UsageError, match=r"in inputs: .*words\.txt has another") as refused:
                client.score(None, [row])  # by the other one, which had read nothing before
            second = made[1].queues["its own"].scorer.identity().whole
            said = f"an answer of {url} (identity {second}) differs from an earlier answer"
            assert said in str(refused.value)
            assert f"(identity {first})" in str(refused.value)


def test_an_answer_that_says_no_identity_is_not_taken_where_another_has_said_one(tmp_path):
    """Behind one address may be a service of before there were identities."""
    words = tmp_path / "words.txt"
    words.write_text("old")
    row, is_silent = {"task": 0, "completion": "x"}, False
    with ExitStack() as stack:
        service = stack.enter_context(Service({"its own": Worded(path=str(words))}, workers=1))
        app = app_of(service)

        async def balancer(scope, receive, send):
            async def send_on(message):
                if is_silent and message["type"] == "http.response.start":
                    headers = [pair for pair in message["headers"] if pair[0] != IDENTITY_HEADER]
                    message = {**message, "headers": headers}
                await send(message)

            await app(scope, receive, send_on)

        url = stack.enter_context(address_of(balancer))
        with Client(url) as client:
            assert client.score(None, [row])[0].score.verdict.why == "old"
            is_silent = True
            with pytest.raises(UsageError, match="does not say by what it scores"):
                client.score(None, [row])


@pytest.mark.parametrize("text", ["localhost:8000", "ftp://h", ""])
def test_an_address_of_an_engine_has_a_scheme(text):
    """The error shows the forms."""
    with pytest.raises(UsageError, match="ray://auto"):
        engine_of(text)


def test_tuples_survive_the_way():
    """As lists they would be other references; a set is refused by name."""
    task = Task(
        "t", [{"role": "user", "content": "?"}], ("a", [1, (2.5, None)]), {"k": {"x": (True,)}}
    )
    item = Item(7, task, Completion("c\ud800", 3, True))
    assert decoded_item(json.loads(encoded_item(item)), 7) == item
    with pytest.raises(DataError, match="reference holds set"):
        encoded_item(Item(1, Task("t", "?", {1}), Completion("c")))


def test_the_least_loaded_machine_is_next():
    """One that failed is left out for a pause that doubles, and tried with one piece of work."""
    balance = Balance(2)
    turns = [balance.take() for _ in range(4)]
    assert sorted(turn.place for turn in turns) == [0, 0, 1, 1]
    for turn in turns:
        if turn.place == 0:
            balance.give_back(turn, is_lost=True)
    assert balance.left_out() == [0]
    assert {balance.take().place for _ in range(5)} == {1}
    time.sleep(0.3)
    later = [balance.take() for _ in range(5)]
    assert [turn.place for turn in later].count(0) == 1
    [trial] = [turn for turn in later if turn.place == 0]
    assert trial.is_trial
    balance.give_back(trial)
    assert balance.left_out() == []


def test_a_machine_that_has_gone_is_neither_chosen_nor_missed():
    """It counts no more, whatever is still under way there."""
    balance = Balance(2)
    lost = balance.take()
    balance.take()
    balance.give_back(lost, is_lost=True)
    balance.leave(lost.place)
    assert balance.left_out() == []
    assert {balance.take().place for _ in range(5)} == {1 - lost.place}
    assert balance.load == 6
    balance.give_back(balance.take(), is_lost=True)
    assert 0 < balance.take().wait_s < 1  # none is fit, and the first to come back is waited for
    balance.leave(1 - lost.place)
    assert balance.load == 0
    with pytest.raises(LookupError, match="no machine is left"):
        balance.take()
