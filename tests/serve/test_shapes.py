"""What others read of the HTTP service: its metrics, OpenRLHF's shape, its interface."""

import re
import time

import pytest

from rlvr.serve import Service
from tests.environments import right
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
