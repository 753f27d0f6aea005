"""What others read of the HTTP service: its metrics, OpenRLHF's shape, its interface."""

import re
import time

import pytest

from rlvr.http.serve import Service
from tests.environments import Measured, Siblings, right
from tests.serve.serving import ask, error, score, serving

SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? [0-9.e+-]+')


def test_metrics_are_prometheus_text():
    """Each sample under a HELP and a TYPE of its own name, buckets cumulative, and the numbers true."""
    with serving() as service:
        score(
            service,
            [*right(1, 2), {"task": 3, "completion": "x"}, {"task": 3, "completion": "3@kill"}, {}],
        )
        score(service, [], env="none")
        text = ask(service, "GET", "/metrics").text
    assert text.endswith("\n")
    lines = text.splitlines()
    named = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    for line in lines:
        assert line.startswith(("# HELP ", "# TYPE ")) or SAMPLE.fullmatch(line), line
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    for name in samples:
        assert re.sub(r"_(bucket|sum|count)$", "", name.partition("{")[0]) in named
    assert samples['rlvr_scores_total{env="trials",outcome="correct"}'] == "2.0"
    assert samples['rlvr_scores_total{env="trials",outcome="unscored"}'] == "1.0"
    assert samples['rlvr_rows_refused_total{env="trials"}'] == "1.0"
    assert samples['rlvr_requests_total{path="/score",status="200"}'] == "1.0"
    assert samples['rlvr_rejected_total{reason="unknown-env"}'] == "1.0"
    assert samples['rlvr_queue_rows{env="trials"}'] == "0.0"
    assert samples['rlvr_workers{env="trials"}'] == "1.0"
    assert samples['rlvr_worker_losses_total{env="trials"}'] == "2.0"  # it was tried twice
    assert (
        float(samples['rlvr_worker_starts_total{env="trials"}']) >= 3
    )  # a worker, one in its place, a spare
    buckets = [
        float(value)
        for name, value in samples.items()
        if "_bucket" in name and 'path="/score"' in name
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == float(samples['rlvr_request_seconds_count{path="/score"}']) == 2


def openrlhf(service: Service, path: str = "/openrlhf/trials", **asked):
    return ask(service, "POST", path, json=asked)


def test_openrlhf_gets_its_shape(service):
    """What the model was shown is cut off; what we failed at is null in both lists, and 1 under `unscored`."""
    queries = ["Say 1.1", "Say 2.3", "Say 3.3@raise"]
    answer = openrlhf(
        service, query=queries, prompts=["Say 1.", "Say 2.", "Say 3."], labels=["1", "2", "3"]
    )
    assert answer.json() == {
        "rewards": [1.0, 0.0, None],
        "scores": [1.0, 0.0, None],
        "extra_logs": {"part/correct": [1.0, 0.0, 0.0], "unscored": [0.0, 0.0, 1.0]},
    }


def test_openrlhf_sends_no_lengths(service):
    """So a reward that reads them is refused, whole, with the way out."""
    asked = {"query": ["Q1", "Q 1"], "prompts": ["Q", "Q"], "labels": ["1", "1"]}
    answer = openrlhf(service, "/openrlhf/siblings", **asked)
    assert answer.status_code == 422
    assert "length_tokens" in error(answer)  # which OpenRLHF does not send


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"query": ["a"], "prompts": ["a"], "labels": []}, "1 queries, 1 prompts and 0 labels"),
        (
            {"query": "a", "prompts": ["a"], "labels": ["a"]},
            "'query' is str 'a'; it must be a list",
        ),
        ({"query": ["a"], "labels": ["a"]}, "'prompts' is NoneType None; it must be a list"),
        (
            {"query": ["a"], "prompts": ["b"], "labels": ["a"]},
            "'a' and does not hold its prompt, 'b'",
        ),
        ({"query": [1], "prompts": ["a"], "labels": ["a"]}, "a query is int 1"),
    ],
)
def test_openrlhf_lists_have_to_match(service, asked, says):
    """There is no place for one row's error in this shape."""
    answer = openrlhf(service, **asked)
    assert answer.status_code == 422
    assert says in error(answer)


def verify(service: Service, text: str, more: dict, **response):
    """What an agent of NeMo Gym sends to its resources server."""
    content = [{"type": "output_text", "text": text}]
    output = [{"type": "reasoning", "summary": []}, {"type": "message", "content": content}]
    body = {"responses_create_params": {"input": "Say it."}, "response": {"output": output}}
    body["response"] |= response
    return ask(service, "POST", "/verify", json=body | more)


def test_nemo_gym_gets_its_shape():
    """What came, with a reward; the columns are those of its data, and the length is the response's."""
    with Service({"measured": Measured()}, workers=1) as service:
        usage = {"usage": {"output_tokens": 8}}
        answer = verify(service, "3", {"expected_answer": "3", "uuid": "u"}, **usage).json()
        wrong = verify(service, "4", {"task": 3}, **usage).json()
        assert ask(service, "POST", "/seed_session", json={"uuid": "u"}).json() == {}
    assert answer["reward"] == 1 - 3 / 5  # three tokens into the last five
    assert answer["uuid"] == "u"
    assert answer["response"]["usage"] == {"output_tokens": 8}
    assert answer["rlvr"]["outcome"] == "correct"
    assert answer["rlvr"]["why"] == "compared: with 3"
    assert wrong["rlvr"]["outcome"] == "wrong"


@pytest.mark.parametrize(
    ("text", "more", "response", "status", "says"),
    [
        ("3@raise", {"task": 3}, {}, 500, "the service failed at this response"),
        ("3", {"task": True}, {}, 422, "task"),
        ("3", {"task": 3}, {"output": 5}, 422, "no list 'output'"),
        ("3", {"task": 3, "response": 5}, {}, 422, "'response' is a int"),
        ("3", {"reference": 3, "responses_create_params": {}}, {}, 422, "'input' has no message"),
    ],
)
def test_nemo_gym_gets_no_reward_where_there_is_none(text, more, response, status, says):
    """An error, which its agent raises: 0 would be a reward."""
    with serving() as service:
        answer = verify(service, text, more, **response)
    assert answer.status_code == status
    assert says in error(answer)


def test_a_reward_of_groups_is_refused_to_nemo_gym():
    """Responses come alone."""
    with Service({"siblings": Siblings()}, workers=1) as service:
        answer = verify(service, "3", {"task": 3})
    assert answer.status_code == 422
    assert "compares completions of a group" in error(answer)


def test_the_interface_is_that_of_the_types(service):
    """What a request may have, is checked by the types from which the documentation is made."""
    found = ask(service, "GET", "/openapi.json").json()
    assert found["openapi"].startswith("3.1")
    asked = found["components"]["schemas"]["ScoreRequest"]
    assert asked["required"] == ["rows"]
    assert set(asked["properties"]) == {"env", "rows", "request_id"}
    row = found["components"]["schemas"]["ScoreRow"]
    assert "reference" in row["properties"]
    score = found["paths"]["/score"]["post"]
    assert score["requestBody"]["content"]["application/json"]["example"]["rows"]
    assert set(score["responses"]["200"]["content"]) == {"application/json", "application/x-ndjson"}
    refused = set(score["responses"]) - {"200"}
    assert {"400", "401", "403", "413", "422", "429", "503"} <= refused
    named = set(re.findall(r"#/components/(\w+)/(\w+)", str(found)))
    assert all(name in found["components"][kind] for kind, name in named)


def test_a_service_that_is_stuck_is_not_ready(service, monkeypatch):
    """All workers busy with rows without end, and /health said that the service was ready."""
    queue = service.queues["trials"]
    assert ask(service, "GET", "/health").json() == {"ready": True}
    monkeypatch.setattr(queue, "_ring", {"someone": [1]})
    monkeypatch.setattr(queue, "_under_way", 2)
    monkeypatch.setattr(queue, "_began_s", time.monotonic() - 16)
    monkeypatch.setattr(queue, "_ended_s", time.monotonic() - 20)
    answer = ask(service, "GET", "/health")
    assert answer.status_code == 503
    assert "busy with the same rows for 16 s" in answer.json()["problems"]["trials"]
    monkeypatch.setattr(queue, "_ended_s", time.monotonic())
    assert ask(service, "GET", "/health").status_code == 200


def test_the_docs_know_every_path(service):
    """As data and as a page, which loads nothing from anywhere."""
    paths = ask(service, "GET", "/openapi.json").json()["paths"]
    assert set(paths) == {
        "/score",
        "/observe",
        "/envs",
        "/openrlhf",
        "/openrlhf/{env}",
        "/seed_session",
        "/verify",
        "/rewards",
        "/reward-model",
        "/health",
        "/health/live",
        "/metrics",
        "/docs",
        "/openapi.json",
    }
    page = ask(service, "GET", "/docs").text
    assert all(path in page for path in paths)
    assert not re.search("<script|<link|src=|https?://", page)
