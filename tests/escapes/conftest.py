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
_LEFT_OUT = frozenset(" ".join(NOT_RESTRICTED.values()).split())


def pytest_collection_modifyitems(items):
    """Leave out the attacks that a call of a session cannot be, and those on what a level does not promise."""
    items[:] = [item for item in items if not _left_out(item)]


def _left_out(item):
    attacked = item.callspec.params.get("attacked", "") if hasattr(item, "callspec") else ""
    in_session = "-session" in attacked and item.originalname in NOT_IN_A_SESSION
    if "-restricted" in attacked:
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
        wanted = user == "root" and "restricted" not in how
        assert counted == wanted, "root needs a cgroup; an ordinary user and a level are tested without one"
        yield (SessionHost if "session" in how else Host)(sandbox, canaries, counted)


@pytest.fixture
def host(attacked):
    """What attacks run on; afterwards it has to be as it was."""
    yield attacked
    attacked.settled()
