"""The same verdict for every caller: threads, asyncio, forks, neighbours that hang, killed workers."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rlvr.verifiers.math import MathPolicy, MathVerifier, symbolic

VERIFIER = MathVerifier(MathPolicy(form="any"))  # the pairs are about values
PAIRS = [  # (answer, reference, right): a few for each part of the path, half of them for the engine
    ("5", "5", True),
    ("5,000", "5000", True),
    (r"\frac{1}{2}", "0.5", True),
    (r"\text{(B)}", "B", True),
    ("(1,2]", "(1,2)", False),
    ("6", "5", False),
    ("9^{9^{9}}", "5", False),
    ("x=x", "x=3", False),
    ("(x+1)^2", "x^2+2x+1", True),
    (r"\sqrt{12}", r"2\sqrt{3}", True),
    (r"\frac{1}{x-1}-\frac{1}{x+1}", r"\frac{2}{x^2-1}", True),
    (r"2\sin x\cos x", r"\sin 2x", True),
    ("2y=6x+2", "y=3x+1", True),
    ("(x-1)^2", "x^2+2x+1", False),
    (r"\sqrt{13}", r"2\sqrt{3}", False),
    (r"\frac{1}{x-1}+\frac{1}{x+1}", r"\frac{2}{x^2-1}", False),
    ("y=3x-1", "y=3x+1", False),
    (r"x+\frac{", r"x+\sqrt{2}", False),
]
EXPECTED = [right for _, _, right in PAIRS]
HANGS = r"\boxed{\int_0^{\infty} \frac{\sin(x^x)}{\ln(x+e^{x})} dx}"


def verdicts(pairs=PAIRS) -> list[bool]:
    return [
        VERIFIER.verify(rf"So \boxed{{{answer}}}.", reference).correct
        for answer, reference, _ in pairs
    ]


def test_the_main_thread():
    """What all others are held to."""
    assert verdicts() == EXPECTED


def test_32_threads_that_start_together():
    """A barrier, so that the first request of all of them meets a pool that has to be started or shared."""
    barrier = threading.Barrier(32)

    def one(_: int) -> list[bool]:
        barrier.wait()
        return verdicts()

    with ThreadPoolExecutor(32) as threads:
        assert list(threads.map(one, range(32))) == [EXPECTED] * 32


def test_asyncio():
    """Directly in the loop, and in its threads."""

    async def main() -> list[list[bool]]:
        return [verdicts(), *await asyncio.gather(*(asyncio.to_thread(verdicts) for _ in range(4)))]

    assert asyncio.run(main()) == [EXPECTED] * 5


def test_the_order_of_the_pairs_does_not_matter():
    """Nothing is remembered that could colour a later verdict; the caches hold references, not verdicts."""
    for seed in range(3):
        shuffled = random.Random(seed).sample(PAIRS, len(PAIRS))
        assert verdicts(shuffled) == [right for _, _, right in shuffled]


def test_a_neighbour_that_hangs_costs_itself_alone():
    """It is killed at its own limit; who waited behind it is timed from its own start."""
    with ThreadPoolExecutor(4) as threads:
        hung = threads.submit(lambda: VERIFIER.verify(HANGS, r"\frac{\pi}{7}+x"))
        others = [threads.submit(verdicts) for _ in range(3)]
        assert [other.result() for other in others] == [EXPECTED] * 3
        assert hung.result().correct is False


def test_a_worker_killed_from_outside_is_replaced():
    """An operator, or the kernel short of memory, may take it at any moment between two pairs."""
    assert verdicts() == EXPECTED
    for worker in symbolic._workers()._all:
        if worker.ready:
            os.kill(worker._process.pid, signal.SIGKILL)
    assert verdicts() == EXPECTED


def test_signals_are_left_alone():
    """A trainer may have an alarm of its own, and a handler that must not be replaced."""
    rang = threading.Event()
    before = signal.signal(signal.SIGALRM, lambda *_: rang.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        while not rang.is_set():
            assert verdicts(PAIRS[8:12]) == EXPECTED[8:12]
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


PROGRAMS = {
    "fork while another thread asks": """
        import os, threading
        from rlvr.verifiers.math import MathVerifier
        ask = lambda: MathVerifier().verify(r"\\boxed{x+2}", "2+x").correct
        assert ask()
        busy = threading.Thread(target=lambda: [ask() for _ in range(50)])
        busy.start()
        child = os.fork()
        if not child:
            os._exit(0 if ask() else 1)
        assert os.waitpid(child, 0)[1] == 0
        busy.join()
        assert ask()
    """,
    "multiprocessing, spawned": """
        import multiprocessing
        def ask(n):
            from rlvr.verifiers.math import MathVerifier
            return MathVerifier().verify(r"\\boxed{x+2}", "2+x").correct
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                assert pool.map(ask, range(2)) == [True, True]
    """,
    "a thread at the end of the interpreter": """
        import threading
        from rlvr.verifiers.math import MathVerifier
        ask = lambda: MathVerifier().verify(r"\\boxed{x+2}", "2+x").correct
        threading.Thread(target=ask).start()
    """,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_processes_of_all_kinds(program, tmp_path):
    """Each gets workers of its own and leaves none behind that keep it from ending."""
    file = tmp_path / "program.py"
    file.write_text("\n".join(line[8:] for line in program.splitlines()))
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run(
        [sys.executable, str(file)], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_warming_up_twice_is_harmless():
    """From several threads too."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: symbolic.warm(), range(8)))
    assert verdicts() == EXPECTED
