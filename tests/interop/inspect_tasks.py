"""Tasks as an author of inspect_ai writes them, for `test_inspect_ai`."""

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageUser, ContentImage
from inspect_ai.scorer import Score, match, mean, model_graded_qa, scorer
from inspect_ai.solver import generate, solver
from inspect_ai.util import sandbox


@task
def sums(start=1):
    samples = [Sample(id=f"s{x}", input=f"{x} + 1?", target=str(x + 1)) for x in (start, start + 1)]
    return Task(dataset=MemoryDataset(samples), solver=generate(), scorer=match(location="exact"))


@solver
def write_file():
    async def solve(state, generate):
        state = await generate(state)
        assert state.output.completion != "crash"
        await sandbox().write_file("deep/answer.txt", state.output.completion)
        return state

    return solve


@scorer(metrics=[mean()])
def of_file():
    async def score(state, target):
        read = await sandbox().exec(["cat", "deep/answer.txt", "given.txt"])
        missing = await sandbox().exec(["sh", "-c", "echo no >&2; exit 3"])
        return Score(
            value={
                "same": read.stdout == target.text + "begun",
                "code": missing.returncode + len(missing.stderr),
            }
        )

    return score


@task
def files():
    sample = Sample(input="Say 3.", target="3", files={"given.txt": "begun"})
    return Task(MemoryDataset([sample]), solver=write_file(), scorer=of_file(), sandbox="docker")


@task
def graded():
    return Task(MemoryDataset([Sample(input="x")]), scorer=model_graded_qa())


@task
def pictures():
    shown = ChatMessageUser(content=[ContentImage(image="data:image/png;base64,AAAA")])
    return Task(MemoryDataset([Sample(input=[shown])]), scorer=match())


@task
def unscored():
    return Task(MemoryDataset([Sample(input="x")]))


NO_TASK = 3
