"""The report of `make test-gpu`, as far as a CPU can make it."""

import torch

from benchmarks.gpu import CHECKS, report


def test_what_a_cpu_can_check_passes_and_the_rest_is_skipped_with_its_reason():
    """So that the code of the checks does not rot between two people with a GPU."""
    checks = report("cpu", ["bf16", "packing", "memory", "sampling", "vllm"])["checks"]
    results = {name: one["result"] for name, one in checks.items()}
    passing = dict.fromkeys(("bf16", "packing", "sampling"), "passed")
    assert results == {**passing, "memory": "skipped", "vllm": "skipped"}, checks
    assert checks["packing"]["numbers"]["gradient, relative to padding"] < 1e-5
    assert all(value > 0 for value in checks["sampling"]["numbers"].values())
    assert "only a GPU counts its memory" in checks["memory"]["why"]


def test_without_a_gpu_every_check_is_skipped(monkeypatch):
    """One command on any machine."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    checks = report("cuda", list(CHECKS))["checks"]
    assert {one["why"] for one in checks.values()} == {"there is no GPU"}


def test_a_check_that_breaks_down_is_named(monkeypatch):
    """The others are still made."""
    monkeypatch.setitem(CHECKS, "memory", lambda place: 1 / 0)
    checks = report("cpu", ["memory", "vllm"])["checks"]
    assert (checks["memory"]["result"], checks["vllm"]["result"]) == ("failed", "skipped")
    assert "ZeroDivisionError" in checks["memory"]["why"]
