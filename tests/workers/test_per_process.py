"""Things made once per process: by one thread, for each set of arguments, and anew in a forked child."""

import os
import threading

from rlvr.workers import once_per_process


def test_it_is_made_once_for_each_set_of_arguments():
    """Sixteen threads that ask at once get the same one; other arguments make another."""
    made = []
    begin = threading.Barrier(16)

    @once_per_process
    def thing(name: str) -> object:
        made.append(name)
        return object()

    found = []
    threads = [
        threading.Thread(target=lambda: (begin.wait(), found.append(thing("a")))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["a"]
    assert len(set(map(id, found))) == 1
    assert thing("b") is not thing("a")


def test_one_may_need_another():
    """The lock is one for all, so it has to let its own thread in again."""
    inner = once_per_process(lambda: "inner")
    outer = once_per_process(lambda: f"outer of {inner()}")
    assert outer() == "outer of inner"


def test_a_forked_child_makes_its_own_even_if_a_thread_held_the_lock():
    """The child has no thread that would ever let go of it."""
    holding, leave = threading.Event(), threading.Event()

    @once_per_process
    def slow() -> int:
        holding.set()
        leave.wait()
        return os.getpid()

    quick = once_per_process(os.getpid)
    thread = threading.Thread(target=slow)
    thread.start()
    holding.wait()
    child = os.fork()
    if not child:
        os._exit(quick() != os.getpid())
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert quick() == os.getpid() == slow()
