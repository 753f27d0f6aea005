"""A Ray cluster as the engine of a scorer, with two simulated nodes.  `make test-ray` runs it, with Ray installed."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

ray = pytest.importorskip("ray")

from ray._private.test_utils import get_other_nodes  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

import rlvr  # noqa: E402
from rlvr.errors import ServiceFailed, UsageError  # noqa: E402
from rlvr.scoring.engines import RayCluster, engine_of  # noqa: E402
from tests.environments import Siblings, Trials, right  # noqa: E402
from tests.json_lines import write_json_lines  # noqa: E402
from tests.processes import PATIENCE_S, run_python  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without CPUs, and two nodes of one CPU."""
    small = {"object_store_memory": 100 << 20}
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small}
    )
    for _ in range(2):
        cluster.add_node(num_cpus=1, **small)
    yield cluster
    cluster.shutdown()


def keys(scored) -> list[tuple]:
    return [(one.item.id, one.score) for one in scored]


ROWS = [
    *right(*range(300)),
    {"x": 1},
    {"task": 1, "completion": "\ud800@raise"},
    {"task": 3, "completion": " "},
]


def test_scores_are_those_of_the_pool(cluster):
    """Whole scores, rows that cannot be used, UNSCORED ones; a class of these tests is not installed on the nodes."""
    said: list[list[tuple]] = [[], []]
    with rlvr.Scorer(Trials(), workers=1) as scorer:
        expected = keys(
            scorer.stream(ROWS, on_error=lambda number, error: said[0].append((number, str(error))))
        )
    with rlvr.Scorer(Trials(), engine=RayCluster(cluster.address)) as scorer:
        got = keys(
            scorer.stream(ROWS, on_error=lambda number, error: said[1].append((number, str(error))))
        )
        assert scorer.workers == 2
    assert got == expected
    assert said[0] == said[1]


def test_groups_are_combined_here(cluster):
    """And two scorers share the nodes."""
    rows = [
        {"task": i // 4, "completion": f"{i // 4}", "length_tokens": 5 * i % 7 + 1}
        for i in range(40)
    ]
    with rlvr.Scorer(Siblings(), workers=0) as scorer:
        expected = keys(scorer.stream(rows))
    with (
        rlvr.Scorer(Siblings(), engine=RayCluster(cluster.address)) as scorer,
        rlvr.Scorer(Trials(), engine=RayCluster(cluster.address)) as other,
    ):
        assert keys(scorer.stream(rows)) == expected
        assert other.score(Trials().task(4), "4").total == 1.0


def test_the_command_gives_the_same_bytes(cluster, tmp_path):
    """`rlvr score --scorer`, in a process of its own."""
    write_json_lines(tmp_path / "in.jsonl", right(*range(50)))
    argv = [
        sys.executable,
        "-m",
        "rlvr",
        "score",
        "arithmetic-v1",
        str(tmp_path / "in.jsonl"),
        "-o",
    ]
    for out, flags in (
        ("a.jsonl", ["--workers", "1"]),
        ("b.jsonl", ["--scorer", f"ray:{cluster.address}"]),
    ):
        done = subprocess.run(
            [*argv, str(tmp_path / out), *flags], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_what_dies_costs_a_retry(cluster):
    """An actor is killed, then a node: every row once, equal, in order."""
    rows = right(*range(3000))
    with rlvr.Scorer(Trials(), engine=RayCluster(cluster.address)) as scorer:
        got = []
        for number, scored in enumerate(scorer.stream(rows)):
            got.append(scored.score.verdict.answer)
            if number == 500:
                ray.kill(scorer.engine._members[0].actor, no_restart=False)
            if number == 1500:
                [node, *_] = get_other_nodes(
                    cluster, exclude_head=True
                )  # not the one that this process is at
                cluster.remove_node(node, allow_graceful=False)
    assert got == [str(i) for i in range(3000)]
    cluster.add_node(num_cpus=1, object_store_memory=100 << 20)


def test_an_environment_that_cannot_be_rebuilt_names_the_node(cluster):
    """Before anything is scored."""

    class Homesick(Trials):
        def __reduce__(self):
            return (_refuse, ())

    with (
        pytest.raises((ServiceFailed, UsageError), match=r"cannot be rebuilt|WorkerError|homesick"),
        rlvr.Scorer(Homesick(), engine=RayCluster(cluster.address)),
    ):
        pass


def _refuse():
    raise RuntimeError("homesick")


def test_a_node_without_rlvr_is_named(cluster, monkeypatch):
    """With the remedy."""
    monkeypatch.setattr("rlvr.scoring.engines.fleet._lacks", lambda: "No module named 'rlvr'")
    with (
        pytest.raises(UsageError, match=r"has no rlvr \(No module named 'rlvr'\); install there"),
        rlvr.Scorer(Trials(), engine=RayCluster(cluster.address)),
    ):
        pass


def test_a_node_that_judges_in_another_way_is_left_out_by_name(cluster, monkeypatch, caplog):
    """The others score; where none is left the difference is the error."""
    compare, others = RayCluster._compare, []

    def differ(self, member, timeout_s):
        others.append(member.host)
        if len(others) == 2:
            raise UsageError("differs in code")
        compare(self, member, timeout_s)

    monkeypatch.setattr(RayCluster, "_compare", differ)
    with rlvr.Scorer(Trials(), engine=RayCluster(cluster.address)) as scorer:
        assert scorer.workers == 1
        assert scorer.score(Trials().task(4), "4").total == 1.0
    assert f"a node is left out: {others[1]}: differs in code" in caplog.text


def test_scorers_of_one_program_share_actors_that_reserve_cpus(cluster):
    """Training and evaluation take turns, and Ray gives the CPUs to nothing else meanwhile."""
    with (
        rlvr.Scorer(Trials(), engine=RayCluster(cluster.address)) as scorer,
        rlvr.Scorer(Siblings(), engine=RayCluster(cluster.address)) as other,
    ):
        actors = [
            {member.actor._actor_id for member in one.engine._members} for one in (scorer, other)
        ]
        assert actors[0] == actors[1]
        await_cpus(0)


def await_cpus(count: int) -> None:
    """Until so many are free: what Ray says of them comes a little later."""
    until = time.monotonic() + PATIENCE_S
    while (free := ray.available_resources().get("CPU", 0)) != count:
        assert time.monotonic() < until, free
        time.sleep(0.1)


def test_a_node_that_comes_later_is_used(cluster):
    """While rows are scored, and it is let go of when it goes; every row once and in order."""
    small, got = {"object_store_memory": 100 << 20}, []
    with rlvr.Scorer(Trials(), engine=RayCluster(cluster.address)) as scorer:
        node, most = None, 0
        for number, scored in enumerate(scorer.stream(right(*range(4000)))):
            got.append(scored.score.verdict.answer)
            if number == 100:
                node = cluster.add_node(num_cpus=1, **small)
                await_workers(scorer, 3)
            most = max(most, scorer.workers)
        cluster.remove_node(node, allow_graceful=False)
        await_workers(scorer, 2)
        assert scorer.score(Trials().task(4), "4").total == 1.0
    assert got == [str(i) for i in range(4000)]
    assert most == 3


def await_workers(scorer: rlvr.Scorer, count: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while scorer.workers != count:
        assert time.monotonic() < until, scorer.workers
        time.sleep(0.1)


DRIVER = """
import sys
import rlvr
from rlvr.scoring.engines import RayCluster
with rlvr.Scorer(rlvr.make("arithmetic-v1"), engine=RayCluster(sys.argv[1])) as scorer:
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_actors_end_with_their_program(cluster):
    """However that ends: its CPUs are free again."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, cluster.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout.readline() == "ready\n"
    ray.init(address=cluster.address, ignore_reinit_error=True, log_to_driver=False)
    try:
        await_cpus(0)
        driver.kill()
        driver.communicate()
        await_cpus(2)
    finally:
        ray.shutdown()


def test_no_cluster_is_said_so():
    """A wrong address is one line."""
    code = (
        "import rlvr; from rlvr.scoring.engines import engine_of\n"
        "try: rlvr.Scorer(rlvr.make('arithmetic-v1'), engine=engine_of('ray:127.0.0.1:9')).warm()\n"
        "except rlvr.errors.RlvrError as error: print(error)"
    )
    done = run_python(code, timeout=300)
    assert "ray start" in done.stdout, done.stderr
    assert isinstance(engine_of("ray://auto"), RayCluster)
