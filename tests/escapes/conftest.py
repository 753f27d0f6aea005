"""One sandbox per user for all attacks, so that each also shows what the one before it left behind."""

import pytest

from tests.sandbox.sandboxes import USERS, Canaries, Host, SessionHost, sandbox_as

# About the end of a process, standard error apart, or a file as standard output: a session has none of these.
NOT_IN_A_SESSION = frozenset(
    """
    test_a_flood_of_output_is_ole
    test_a_loop_at_the_end_is_still_the_program
    test_a_program_has_three_descriptors
    test_a_shell_fork_bomb_ends
    test_a_slow_drip_ends_at_the_wall
    test_a_source_that_does_not_compile_is_its_author_s_fault
    test_a_stack_that_overflows_in_python
    test_a_tool_that_writes_too_large_a_file_is_told_so
    test_binary_output_is_bytes
    test_cpu_time_of_threads_counts
    test_exactly_the_limit_is_within_it
    test_exit_codes_of_every_kind
    test_files_are_counted_without_our_own_folders
    test_output_of_a_program_that_is_killed_is_kept
    test_printing_a_surrogate_is_the_program_s_error
    test_programs_of_other_languages_too
    test_the_compiler_s_cache_cannot_be_written
    test_the_cpu_limit_cannot_be_raised
    test_the_program_s_memory_holds_no_secret
    test_threads_that_never_end_are_ended
    """.split()
)


# About promises that the level "restricted" does not make, or mechanisms that it does not have.
NOT_RESTRICTED = {
}


def pytest_collection_modifyitems(items):
    """Leave out the attacks that a call of a session cannot be, and those on what a level does not promise."""
    items[:] = [item for item in items if not _left_out(item)]


def _left_out(item):
    attacked = item.callspec.params.get("attacked", "") if hasattr(item, "callspec") else ""
    in_session = "-session" in attacked and item.originalname in NOT_IN_A_SESSION
    return in_session or ("-restricted" in attacked and item.originalname in NOT_RESTRICTED)


@pytest.fixture(scope="session")
def canaries():
    canaries = Canaries()
    yield canaries
    canaries.close()


HOWS = ("", "-session", "-restricted", "-restricted-session")


@pytest.fixture(scope="session", params=[user + how for how in HOWS for user in USERS])
def attacked(request, canaries):
    """Fails with the doctor's words where this machine cannot isolate."""
    user, *how = request.param.split("-")
    with sandbox_as(user, level="restricted" if "restricted" in how else "namespaces") as sandbox:
        counted = any(g.name == "memory" and "cgroup" in str(g.mechanism) for g in sandbox.check())
        wanted = user == "root" and "restricted" not in how
        assert counted == wanted, "root needs a cgroup; an ordinary user and a level are tested without one"
        yield (SessionHost if "session" in how else Host)(sandbox, canaries, counted)


@pytest.fixture
def host(attacked):
    """What attacks run on; afterwards it has to be as it was."""
    yield attacked
    attacked.settled()
