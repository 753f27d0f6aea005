"""The benchmark that counts what a path passes."""

from benchmarks.walk import count
from rlvr.samplers import rollout_seed


def test_what_a_job_passes_is_counted_once_and_by_its_file():
    """A seed is made by a hash of rlvr's; two seeds pass no more than one."""
    passed = count(lambda: rollout_seed("a"))
    assert passed[:2] == [
        ("samplers/protocol.py", "rollout_seed"),
        ("environment/seeds.py", "seeded"),
    ]
    assert count(lambda: (rollout_seed("a"), rollout_seed("b"))) == passed
    assert count(lambda: None) == []
