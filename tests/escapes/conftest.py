"""One sandbox per user for all attacks, so that each also shows what the one before it left behind."""

import os

import pytest

from tests.sandbox.sandboxes import USERS, Canaries, Host, SessionHost, sandbox_as

NOT_IN_A_SESSION = {
    # A call is over with its last statement, whatever an interpreter would still do or wait for.
    "test_a_loop_at_the_end_is_still_the_program": "what runs at exit does not run in a call",
    "test_threads_that_never_end_are_ended": "threads are stopped between calls, and go on in the next one",
    # Requests of several cases, which sessions have not.
    "test_the_next_case_of_a_request_finds_nothing_either": "a session has calls",
    "test_a_case_finds_nothing_of_those_that_wait": "the same",
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


# What the level "restricted" does not promise, or does in another way, which test_restricted.py attacks.
NOT_RESTRICTED = {
    "the scratch has no hard limit and is no memory; a run over it ends MLE": """
        test_a_deep_tree_of_folders_goes_with_the_run
        test_a_disk_of_next_to_nothing_is_not_one_without_limit
        test_a_full_disk_is_the_program_s_own
        test_a_tool_that_writes_too_large_a_file_is_told_so
        test_deleted_files_that_are_open_still_count
        test_files_are_counted_without_our_own_folders
        test_files_in_scratch_are_memory
        test_hard_links_run_out
        test_inodes_run_out
        test_what_a_run_left_in_its_scratch_is_no_room_for_the_next""",
    "/tmp and /dev/shm are the host's and closed; the scratch, TMPDIR too, has a path of the host": """
        test_frames_and_objects_of_ours_hold_nothing_of_the_host
        test_a_working_directory_that_is_gone
        test_sparse_files_take_no_room
        test_set_user_id_programs_gain_nothing
        test_two_runs_at_once_do_not_see_each_other""",
    "numbers of the host's processes are seen": """
        test_every_number_is_tried
        test_process_numbers_begin_anew""",
    "names of files and of the host are seen; /proc has the program's own process, not its children": """
        test_a_program_cannot_leave_the_line_of_those_to_be_killed
        test_a_walk_over_everything_finds_no_secret
        test_other_peoples_packages_are_hidden
        test_proc_shows_the_run_and_no_machine
        test_the_filter_cannot_be_taken_off
        test_the_table_of_mounts_names_no_folder_of_the_host_that_is_not_there
        test_where_on_the_host_it_runs_is_not_said""",
    "sockets are two ends of a pair, and send no descriptors": """
        test_descriptors_in_flight_go_with_the_run
        test_only_unix_sockets_can_be_made""",
}
NOT_IN_A_RESTRICTED_SESSION = {
    "test_a_flood_of_output_is_ole[by fallocate]": "fallocate() is refused, and the program ends by its own error",
    "test_the_compiler_s_cache_cannot_be_written": "there is no /cache, and a reply has what ls says about that",
}
_LEFT_OUT = frozenset(" ".join(NOT_RESTRICTED.values()).split())


def pytest_collection_modifyitems(items):
    """Leave out the attacks that a call of a session cannot be, and those on what a level does not promise."""
    items[:] = [item for item in items if not _left_out(item)]


def _left_out(item):
    attacked = item.callspec.params.get("attacked", "") if hasattr(item, "callspec") else ""
    name = item.name.replace(f"[{attacked}-", "[").replace(f"[{attacked}]", "")
    in_session = "-session" in attacked and not NOT_IN_A_SESSION.keys().isdisjoint(
        {item.originalname, name}
    )
    if "-restricted" in attacked:
        in_session |= "-session" in attacked and not NOT_IN_A_RESTRICTED_SESSION.keys().isdisjoint(
            {item.originalname, name}
        )
        return in_session or item.originalname in _LEFT_OUT
    return in_session or item.path.name == "test_restricted.py"


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
        contained = "RLVR_IN_CONTAINER" in os.environ  # by make test-container
        assert counted == (user == "root" and not contained), (
            "root needs a cgroup; an ordinary user is tested without one"
        )
        yield (SessionHost if "session" in how else Host)(sandbox, canaries, counted)


@pytest.fixture
def host(attacked):
    """What attacks run on; afterwards it has to be as it was."""
    yield attacked
    attacked.settled()
