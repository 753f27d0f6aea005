"""One sandbox per user for all attacks, so that each also shows what the one before it left behind."""

import pytest

from tests.sandbox.sandboxes import USERS, Canaries, Host, SessionHost, sandbox_as

NOT_IN_A_SESSION = {
    # A call is over with its last statement, whatever an interpreter would still do or wait for.
    "test_a_loop_at_the_end_is_still_the_program": "what runs at exit does not run in a call",
    "test_threads_that_never_end_are_ended": "threads are stopped between calls, and go on in the next one",
    # Descriptors.
    "test_a_program_has_three_descriptors": "a session has two more: the socket to its pid 1, and the code",
    "test_programs_of_other_languages_too[bash-ls /proc/self/fd]": "the same",
    # Output is one text of both streams, and what was written is never overwritten.
    "test_binary_output_is_bytes": "a reply is a text",
    "test_a_flood_of_output_is_ole[by sendfile]": "the kernel refuses sendfile() to a file that is appended to",
    "test_a_flood_of_output_is_ole[by a hole]": "such a file has no holes",
    # Endings.
    "test_files_are_counted_without_our_own_folders": "a session has no main.py, which the test counts",
    "test_a_tool_that_writes_too_large_a_file_is_told_so": "the signal that it sends to itself ends the session",
}
"""Test, perhaps one set of its parameters → why a call of a session cannot be that attack."""


def pytest_collection_modifyitems(items):
    """Leave out the attacks that a call of a session cannot be."""
    items[:] = [item for item in items if not _left_out(item)]


def _left_out(item):
    attacked = item.callspec.params.get("attacked", "") if hasattr(item, "callspec") else ""
    name = item.name.replace(f"[{attacked}-", "[").replace(f"[{attacked}]", "")
    return "-session" in attacked and not NOT_IN_A_SESSION.keys().isdisjoint({item.originalname, name})


@pytest.fixture(scope="session")
def canaries():
    canaries = Canaries()
    yield canaries
    canaries.close()


@pytest.fixture(scope="session", params=[*USERS, *(f"{user}-session" for user in USERS)])
def attacked(request, canaries):
    """Fails with the doctor's words where this machine cannot isolate."""
    user, _, how = request.param.partition("-")
    with sandbox_as(user) as sandbox:
        counted = any(g.name == "memory" and "cgroup" in str(g.mechanism) for g in sandbox.check())
        assert counted == (user == "root"), "root needs a cgroup; an ordinary user is tested without one"
        yield (SessionHost if how else Host)(sandbox, canaries, counted)


@pytest.fixture
def host(attacked):
    """What attacks run on; afterwards it has to be as it was."""
    yield attacked
    attacked.settled()
