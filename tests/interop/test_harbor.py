"""harbor's task folders: what is read, refused and judged; and folders of ours, which earn 1 and 0."""

import dataclasses
import json
import os
import sys
import tomllib
import warnings

import pytest

import rlvr
from rlvr.environment.ready_tools import bash, sandbox
from rlvr.errors import DataError, DataWarning, NonConforming, UsageError
from rlvr.interop import from_harbor, to_harbor, validate_harbor
from rlvr.interop.harbor_folder import HarborFolder
from rlvr.testing import check_environment

TOML = """schema_version = "1.4"
artifacts = ["/app"]

[task]
name = "tests/double"

[verifier]
timeout_sec = 20.0
environment_mode = "separate"

[environment]
network_mode = "no-network"
"""

FILES = {
    "task.toml": TOML,
    "instruction.md": "Write twice the number of /app/number.txt to /app/twice.txt.\n",
    "environment/Dockerfile": (
        "# the smallest\nFROM python:3.11-slim\nWORKDIR /app\nENV UNIT=apples \\\n    SIZE=2\n"
        "COPY number.txt ./\n"
    ),
    "environment/number.txt": "21",
    "solution/solve.sh": "#!/bin/bash\ntest $UNIT = apples && echo $(( $(cat number.txt) * SIZE )) > twice.txt\n",
    "tests/test.sh": (
        '#!/bin/bash\n[ "$(cat /app/twice.txt)" = 42 ] && reward=1 || reward=0\n'
        "echo $reward > /logs/verifier/reward.txt\n"
    ),
}


def write(root, **changes):
    """A task folder; `changes` by the path's name with _ for / and ., None to leave a file out."""
    files = dict(FILES)
    for name, text in changes.items():
        path = next(p for p in FILES if p.replace("/", "_").replace(".", "_") == name)
        files[path] = text
    for path, text in files.items():
        if text is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    return root


@pytest.fixture(scope="module")
def double(tmp_path_factory):
    """A folder that validates."""
    root = write(tmp_path_factory.mktemp("harbor") / "double")
    assert validate_harbor(root) == {"double": ""}
    return root


def play(env, *commands):
    task = env.task(0)
    with env.open(task) as episode:
        for command in commands:
            episode.reply(rlvr.Ask("bash", {"command": command}))
        episode.reply("Done.")
        return env.score(task, episode.completion())


# ------------------------------------------------------------------------------------------ reading


def test_what_a_folder_says(double):
    """Continued lines, comments, a relative COPY, and harbor's own folder of artifacts."""
    folder = HarborFolder.read(double)
    assert (folder.name, folder.workdir, folder.separate) == ("tests/double", "/app", True)
    assert folder.env == {"UNIT": "apples", "SIZE": "2"}
    assert folder.files == {"/app/number.txt": b"21"}
    assert [one.source for one in folder.artifacts] == ["/app", "/logs/artifacts"]
    assert folder.folders == ("/app", "/logs", "/solution", "/tests")


DOCKERFILES = {
    "FROM ubuntu:24.04": "Dockerfile:1: FROM ubuntu:24.04: only a plain python:3",
    "FROM python:3.11-alpine": "Dockerfile:1: FROM python:3.11-alpine",
    "FROM python:3.11 AS build": "Dockerfile:1: one FROM",
    "FROM python:3.11\nFROM python:3.12": "Dockerfile:2: one FROM",
    "FROM python:3.11\n\n# x\nRUN pip install x": "Dockerfile:4: RUN is not offered",
    "WORKDIR /app": "Dockerfile:1: an image begins with FROM",
    "FROM python:3.11\nCOPY ../x /app/": "Dockerfile:2: COPY ../x: it has '..'",
    "FROM python:3.11\nCOPY number.txt /app/../x/": "Dockerfile:2: .*the target has '..'",
    "FROM python:3.11\nCOPY none.txt /app/": "Dockerfile:2: COPY none.txt: there is no such file",
    "FROM python:3.11\nCOPY *.txt /app/": "Dockerfile:2: .*patterns are not offered",
    "FROM python:3.11\nCOPY --chown=a number.txt /app/": "Dockerfile:2: COPY --chown=a: options",
    "FROM python:3.11\nCOPY number.txt /usr/bin/": "Dockerfile:2: .* is in /usr",
    "FROM python:3.11\nCOPY number.txt /x": "Dockerfile:2: .*a file at the root",
    "FROM python:3.11\nENV PATH=/app:$PATH": "Dockerfile:2: ENV with variables",
    "FROM python:3.11\nWORKDIR /proc": "Dockerfile:2: .* is in /proc",
    "FROM python:3.11\nWORKDIR ../x": "Dockerfile:2: WORKDIR ../x: give a path without",
    "FROM python:3.11\nENV 2X=1": "Dockerfile:2: ENV 2X=1: '2X' is no name",
    'FROM python:3.11\nENV A="1': "Dockerfile:2: .*No closing quotation",
    'FROM python:3.11\nCOPY ["number.txt" "/app/"]': "Dockerfile:2: .*it is no list",
    "FROM python:3.11\nCOPY number.txt": "Dockerfile:2: COPY number.txt: give sources and a",
    "FROM python:3.11\nRUN true \\": "Dockerfile:2: RUN is not offered",
    "": "Dockerfile:1: there is no FROM",
}


@pytest.mark.parametrize("text", DOCKERFILES)
def test_a_dockerfile_that_asks_for_more_is_refused_by_line(tmp_path, text):
    with pytest.raises(DataError, match=DOCKERFILES[text]):
        HarborFolder.read(write(tmp_path / "t", environment_Dockerfile=text))


TOMLS = {
    'schema_version = "1.5"': "task.toml:1: schema_version: 1.5 is newer than 1.4",
    'version = "2.0"': "task.toml:1: version: 2.0 is newer",
    'schema_version = "new"': "task.toml:1: schema_version: 'new' is no version",
    "x = [": "task.toml: it is no TOML",
    '[[steps]]\nname = "a"': "task.toml:1: steps: it is not offered",
    "environment = 3": "task.toml:1: environment: it is int 3; give a table",
    '[environment]\nworkdir = "app"': "task.toml:2: .*'app' is no absolute path",
    "[solution]\nenv = 3": "task.toml:2: .*env: it is int 3; give a table",
    "[solution.env]\nKEY = 3": "task.toml:1: .*'KEY' = int 3 is no variable",
    "[environment]\ngpus = 1": r"task.toml:2: \[environment\] gpus: there are none",
    '[environment]\nos = "windows"': "task.toml:2: .* only linux",
    '[environment]\nnetwork_mode = "public"': "task.toml:2: .*'public': there is no network",
    "[environment]\nallow_internet = true": "task.toml:2: .*there is no network",
    '[environment.tpu]\ntype = "v6e"': r"task.toml:1: \[environment\] tpu: it is not offered",
    '[agent]\nuser = "agent"': r"task.toml:2: \[agent\] user: it is not offered",
    "[agent]\ntimeout_sec = -1": "task.toml:2: .* it is int -1",
    '[verifier]\nenvironment_mode = "own"': "task.toml:2: .*'own' is neither",
    '[verifier.env]\nKEY = "${KEY}"': "task.toml:1: .*KEY takes its value from the host",
    'artifacts = ["/app/../etc"]': "task.toml:1: artifacts: str '/app/../etc' has '..'",
    'artifacts = "/app"': "task.toml:1: artifacts: they are str '/app'; give a list",
    'artifacts = ["app"]': "task.toml:1: artifacts: str 'app' has no absolute source",
    'artifacts = ["/etc/passwd"]': "task.toml:1: artifacts: '/etc/passwd' is in /etc",
    'artifacts = [{source = "/app", service = "db"}]': "task.toml:1: artifacts: .*no services",
}


@pytest.mark.parametrize("text", TOMLS)
def test_a_task_that_needs_more_is_refused_by_line(tmp_path, text):
    with pytest.raises(DataError, match=TOMLS[text]):
        HarborFolder.read(write(tmp_path / "t", task_toml=text))


def test_a_dockerfile_in_its_older_and_longer_forms(tmp_path):
    """Lists, folders, several sources, one variable a line, relative folders, a last line that goes on."""
    text = (
        'FROM docker.io/library/python:3\nWORKDIR /app\nWORKDIR "src"\nENV UNIT red apples\n'
        'COPY ["number.txt", "./one.txt"]\nCOPY number.txt data/a.txt /app/\nCOPY . all\nENV X=1 \\'
    )
    root = write(tmp_path / "t", environment_Dockerfile=text)
    (root / "environment/data").mkdir()
    (root / "environment/data/a.txt").write_text("a")
    folder = HarborFolder.read(root)
    assert (folder.workdir, folder.env) == ("/app/src", {"UNIT": "red apples", "X": "1"})
    assert {path for path in folder.files if "Dockerfile" not in path} == {
        "/app/src/one.txt",
        "/app/number.txt",
        "/app/a.txt",
        "/app/src/all/number.txt",
        "/app/src/all/data/a.txt",
    }


def test_an_image_without_a_dockerfile_has_the_folders_files(tmp_path):
    """harbor puts them where commands begin; limits and variables are the task's."""
    image = '[environment]\ndocker_image = "python:3.11-slim"\n'
    limits = 'workdir = "/app"\nmemory_mb = 128\nstorage_mb = 16\n[verifier.env]\nMOST = "3"\n'
    changes = {"environment_Dockerfile": None}
    folder = HarborFolder.read(write(tmp_path / "t", task_toml=image + limits, **changes))
    assert folder.files == {"/app/number.txt": b"21"}
    assert (folder.memory_mib, folder.storage_mib) == (128, 16)
    assert (folder.verifier_env, folder.separate) == ({"MOST": "3"}, False)
    with pytest.raises(DataError, match=r"task.toml:2: .*files of environment/ need a workdir"):
        HarborFolder.read(write(tmp_path / "root", task_toml=image, **changes))
    other = image.replace("python:3.11-slim", "ubuntu")
    with pytest.raises(DataError, match=r"task.toml:2: .*'ubuntu' is no plain python:3"):
        HarborFolder.read(write(tmp_path / "ubuntu", task_toml=other, **changes))


def test_what_is_missing_or_linked_is_refused_by_name(tmp_path):
    for name in ("task_toml", "instruction_md", "environment_Dockerfile", "solution_solve_sh"):
        with pytest.raises(DataError, match="there is no such file"):
            HarborFolder.read(write(tmp_path / name, **{name: None}))
    linked = write(tmp_path / "linked")
    (linked / "environment" / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(DataError, match="environment/passwd: a link"):
        HarborFolder.read(linked)
    for name in (
        "environment/docker-compose.yaml",
        "tests/Dockerfile",
        "environment/.dockerignore",
    ):
        root = write(tmp_path / name.replace("/", "-"))
        (root / name).write_text("")
        with pytest.raises(DataError, match=f"{name}:1: "):
            HarborFolder.read(root)
    for name, make in {"pipe": os.mkfifo, "latin": lambda path: path.write_bytes(b"\xe9")}.items():
        root = write(tmp_path / name, instruction_md=None)
        make(root / "instruction.md")
        with pytest.raises(DataError, match=r"instruction.md: it is no (regular file|UTF-8)"):
            HarborFolder.read(root)
    with pytest.raises(DataError, match="it is no folder of a task"):
        HarborFolder.read(tmp_path / "none")
    huge = write(tmp_path / "huge")
    with (huge / "environment" / "huge").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(DataError, match="at most 32 MiB"):
        HarborFolder.read(huge)


# --------------------------------------------------------------------------------------- validation


def test_only_what_was_validated_loads(double, tmp_path):
    """No file, other files, another Python, a solution that earns nothing: each in one line that says what to do."""
    other = write(tmp_path / "other")
    with pytest.raises(
        DataError, match=r"it has no validation.json; run rlvr.interop.validate_har"
    ):
        from_harbor(other)
    report = json.loads((double / "validation.json").read_text())
    assert (report["oracle"]["reward"], report["nop"]["reward"]) == (1.0, 0.0)
    assert report["versions"]["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    changes = {
        "files have changed": {"digest": "0"},
        "validated with Python 3.1,": {"versions": {"python": "3.1"}},
        r"packages=\['pytest'\]; give them": {"packages": ["pytest"]},
        "solution earned 0.5": {"oracle": {"reward": 0.5}},
        "doing nothing None": {"nop": {"reward": None}},
        "cannot be read": {"nop": None},
    }
    for why, change in changes.items():
        (other / "validation.json").write_text(json.dumps(report | change))
        with pytest.raises(DataError, match=why):
            from_harbor(other)


def test_tests_that_pay_an_empty_hand_or_write_nothing_do_not_validate(tmp_path):
    write(
        tmp_path / "all" / "paid", tests_test_sh="#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"
    )
    write(tmp_path / "all" / "mute", tests_test_sh="#!/bin/bash\necho sorry\n")
    reasons = validate_harbor(tmp_path / "all")
    assert "solution earned 1.0 and doing nothing 1.0" in reasons["paid"]
    assert "earned None" in reasons["mute"]
    assert "sorry" in reasons["mute"]
    with pytest.raises(DataError, match="it needs 1 and 0"):
        from_harbor(tmp_path / "all")


def test_of_several_folders_those_that_cannot_be_used_are_named_and_counted(double, tmp_path):
    import shutil

    shutil.copytree(double, tmp_path / "good")
    write(tmp_path / "new")
    write(tmp_path / "ubuntu", environment_Dockerfile="FROM ubuntu")
    with pytest.warns(DataWarning, match="2 task folders are left out: .*ubuntu"):
        env = from_harbor(tmp_path)
    assert env.rows_left_out == {"not validated": 1, "cannot be played here": 1}
    assert [task.id for task in env.tasks()] == ["harbor-v1/train/tests/double"]


# ----------------------------------------------------------------------------------------- episodes


@pytest.fixture(scope="module")
def env(double):
    return from_harbor(double)


CHEATS = {
    "nothing": "true",
    "a wrong number": "echo 41 > twice.txt",
    "reward files": "for d in /logs/verifier /logs/artifacts; do echo 1 > $d/reward.txt; echo 1 > $d/reward.json; done",
    "tests of its own": "echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; chmod +x /tests/test.sh",
    "functions and traps": "cat() { echo 42; }; export -f cat; trap 'echo 42' DEBUG EXIT",
    "a shell's start": "echo 'echo 1 > /logs/verifier/reward.txt' > start; export BASH_ENV=$PWD/start",
    "a link": "ln -s /proc/self/cmdline twice.txt",
    "a shadow": "printf '#!/bin/sh\\necho 42\\n' > cat; chmod +x cat; export PATH=$PWD:$PATH",
    "a late process": "(sleep 1; echo 42 > twice.txt) & disown",
    "no room for the tests": "for ((i = 0; i < 30000; i++)); do : > f$i; done",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_what_was_not_done_is_not_paid(env, cheat):
    score = play(env, CHEATS[cheat])
    assert (score.verdict.outcome, score.total) == ("wrong", 0.0)


def test_work_is_paid_and_graded_again_from_its_record(env):
    """The example is the folder's own solution; a record has the files that it left."""
    task = env.task(0)
    assert "twice the number" in task.prompt
    assert "bash session in /app" in task.prompt
    with env.open(task) as episode:
        for turn in env.example_episode(task):
            episode.reply(turn)
        record = episode.record
    assert env.score(task, env.completion_of(record)).verdict.why == "full-reward"
    assert record.outputs["app/twice.txt"] == "42\n"
    empty = dataclasses.replace(record, final=None)
    assert env.plays.regrade(env, task, empty).final["reward"] == 1.0


def test_tests_that_a_policy_makes_fail_are_the_policys_fault(tmp_path):
    """A missing reward, endless tests and a reward that is no number are WRONG: the solution's were not so."""
    root = write(
        tmp_path / "t",
        task_toml=TOML.replace("20.0", "2.0"),
        tests_test_sh="#!/bin/bash\nread n < /app/twice.txt || n=0\n[ $n = 42 ] && n=1\n"
        "[ $n = loop ] && while :; do :; done\n"
        "[ $n = mute ] || echo $n > /logs/verifier/reward.txt\n",
    )
    assert validate_harbor(root) == {"t": ""}
    env = from_harbor(root)
    for text, why in {
        "mute": "no-reward: the tests wrote none",
        "loop": "no-reward",
        "nan": "no-reward",
    }.items():
        score = play(env, f"echo {text} > /app/twice.txt")
        assert (score.verdict.outcome, score.total) == ("wrong", 0.0)
        assert score.verdict.why.startswith(why)
    assert play(env, "echo 0.5 > twice.txt").verdict.value == 0.5
    assert play(env, "head -c 100000000 /dev/zero > big").verdict.outcome == "wrong"


def test_json_comes_before_text_and_names_one_reward(tmp_path):
    """As harbor reads them: {"reward": 1} beside other numbers, whatever reward.txt says."""
    reward = '{"reward": %s, "style": 0.2}'
    tests = (
        "#!/bin/bash\necho 7 > /logs/verifier/reward.txt\n[ -f /app/twice.txt ] && n=1 || n=0\n"
        f"printf '{reward}' $n > /logs/verifier/reward.json\n"
    )
    root = write(tmp_path / "t", tests_test_sh=tests)
    assert validate_harbor(root) == {"t": ""}
    score = play(from_harbor(root), "touch twice.txt")
    assert score.verdict.detail["rewards"] == {"reward": 1.0, "style": 0.2}


def test_what_artifacts_exclude_is_not_judged(tmp_path):
    """Names and paths by tar's patterns; the image's own file stands where the policy's is left out."""
    artifacts = 'artifacts = [{source = "/app", exclude = ["*.log", "cache"]}]'
    root = write(
        tmp_path / "t",
        task_toml=TOML.replace('artifacts = ["/app"]', artifacts),
        tests_test_sh="#!/bin/bash\ncd /app\n[ -f twice.txt ] && [ ! -e a.log ] && [ ! -e cache ]\n"
        "echo $((1 - $?)) > /logs/verifier/reward.txt\n",
        solution_solve_sh="#!/bin/bash\nmkdir cache; touch twice.txt a.log cache/x\n",
    )
    assert validate_harbor(root) == {"t": ""}


REWARDS = {
    "[": "is no number",
    '"one"': "reward is one",
    '{"a": 1, "b": 2}': "none of the numbers is named reward",
    '{"reward": NaN}': "reward is nan",
}


def test_rewards_of_other_forms_are_none(tmp_path):
    """A single number by another name is the reward."""
    reward = "/logs/verifier/reward.json"
    root = write(
        tmp_path / "t",
        tests_test_sh="#!/bin/bash\ncat /app/twice.txt > " + reward + " || echo 0 > " + reward,
        solution_solve_sh="#!/bin/bash\necho '{\"style\": 1}' > twice.txt\n",
    )
    assert validate_harbor(root) == {"t": ""}
    env = from_harbor(root)
    for text, why in REWARDS.items():
        verdict = play(env, f"echo '{text}' > twice.txt").verdict
        assert verdict.outcome == "wrong"
        assert why in verdict.why


def test_tests_in_the_policys_own_container_see_its_files_and_none_of_its_processes(tmp_path):
    """Without `separate` all writable folders are left; what was deleted stays so."""
    root = write(
        tmp_path / "t",
        task_toml=TOML.replace('environment_mode = "separate"', "").replace(
            'artifacts = ["/app"]', ""
        ),
        tests_test_sh="#!/bin/bash\n[ ! -e /app/number.txt ] && [ -x /app/run ] && n=1 || n=0\n"
        "echo $n > /logs/verifier/reward.txt\n",
        solution_solve_sh="#!/bin/bash\nrm number.txt; printf '#!/bin/sh\\n' > run; chmod +x run\n",
    )
    assert validate_harbor(root) == {"t": ""}


@pytest.mark.slow
def test_check_names_tests_that_import_the_policys_code_beside_the_reward_file(tmp_path):
    """reward.json is read first, so a module that writes it earns 1 although the tests fail and say 0."""
    tests = (
        "#!/bin/bash\ncd /app\nif [ \"$(python3 -c 'from twice import twice; print(twice(21))')\" = 42 ]; then n=1; "
        "else n=0; fi\necho $n > /logs/verifier/reward.txt\n"
    )
    root = write(
        tmp_path / "t",
        environment_Dockerfile="FROM python:3.11\nWORKDIR /app\nCOPY twice.py ./\n",
        tests_test_sh=tests,
        solution_solve_sh="#!/bin/bash\necho 'def twice(n): return 2 * n' > twice.py\n",
    )
    (root / "environment" / "twice.py").write_text("def twice(n): return n\n")
    assert validate_harbor(root) == {"t": ""}
    with pytest.raises(NonConforming, match="import the policy's code beside the reward file"):
        check_environment(from_harbor(root))


# --------------------------------------------------------------------------------------------- ours


@pytest.mark.slow
def test_folders_of_ours_are_graded_apart_and_load_again(tmp_path):
    """One reply and a session's files, each validated: the verdict is that of the environment itself."""
    folders = to_harbor(rlvr.make("arithmetic-v1"), tmp_path / "sums", tasks=1)
    folders += to_harbor(rlvr.make("bash-v1"), tmp_path / "bash", tasks=1)
    for folder in folders:
        config = tomllib.loads((folder / "task.toml").read_text())
        assert config["verifier"]["environment_mode"] == "separate"
        assert config["artifacts"]
        assert json.loads((folder / "validation.json").read_text())["oracle"]["reward"] == 1.0
    sums = from_harbor(tmp_path / "sums")
    assert play(sums, "echo 'no number' > /app/reply.txt").total == 0.0
    assert play(sums, "echo 1 > /app/rlvr.py; echo 1 > /logs/verifier/reward.json").total == 0.0


class Chat(rlvr.Environment):
    def task(self, index):
        return rlvr.Task(f"chat/{index}", "Say hello.")

    @rlvr.tool
    def greet(self, state, name: str) -> str:
        """Greet somebody."""
        return f"hello {name}"

    def verify(self, task, episode):
        return rlvr.Verdict("correct", why="always")


class Mute(rlvr.Environment):
    """Has no example, and an option that JSON cannot hold."""

    odd: object = None

    def task(self, index):
        return rlvr.Task(f"mute/{index}", "Say hello.")

    def verify(self, task, completion):
        return rlvr.Verdict("correct", why="always")


class MuteShell(rlvr.Environment):
    """A session whose example is missing."""

    def task(self, index):
        return rlvr.Task(f"shell/{index}", "Do nothing.")

    def setup(self, task):
        return sandbox().session("bash")

    def tools(self, state):
        return [bash(state)]

    def final(self, task, state):
        return None

    def verify(self, task, episode):
        return rlvr.Verdict("correct", why="always")


class OddShell(MuteShell):
    """An example that calls the tool by another argument."""

    def example_episode(self, task):
        return [rlvr.Ask("bash", {"code": "true"}), "Done."]


def test_what_cannot_be_a_folder_is_refused_by_name(tmp_path):
    class Local(Mute):
        def example(self, task):
            return "hello"

    refused = {
        "has no example reply to 'mute/0'": Mute(),
        "has no example of 'shell/0'": MuteShell(),
        "calls a tool without a command": OddShell(),
        "Local is defined in a function": Local(),
    }
    for why, env in refused.items():
        with pytest.raises(UsageError, match=why):
            to_harbor(env, tmp_path / type(env).__name__, tasks=1)
    with pytest.raises(UsageError, match="its grade runs code"):
        to_harbor(rlvr.make("swe-lite-v1"), tmp_path / "swe", tasks=1)
    with pytest.raises(UsageError, match="has the tools greet"):
        to_harbor(Chat(), tmp_path / "chat", tasks=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(UsageError, match="has files; give a new folder"):
        to_harbor(rlvr.make("bash-v1"), tmp_path / "full", tasks=1)
    with (
        warnings.catch_warnings(),
        pytest.raises(DataError, match="nor a folder in it has a task"),
    ):
        from_harbor(tmp_path / "none")
