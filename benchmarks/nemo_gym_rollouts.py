"""Example rollouts in NeMo Gym's wheel, judged by our verifiers where there is one of their kind.

    pip download --no-deps nemo-gym==0.4.0 && unzip -q nemo_gym-*.whl -d gym
    python -m benchmarks.nemo_gym_rollouts gym

Prints, for each server, on how many rollouts reward and verdict agree, and every other one.
Nothing of the wheel is kept.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import rlvr

Row = Mapping[str, Any]


def options_of(row: Row) -> Any:
    merged = {letter: text for one in row["options"] for letter, text in one.items()}
    return {"options": list(merged.values()), "answer": merged[row["expected_answer"]]}


def roles_of(row: Row) -> Any:
    if row["metadata"]["source_dataset"] != "knights_knaves":
        return None
    return dict(re.findall(r"(\w+) is an? (\w+)", row["answer"]))


def instructions_of(row: Row) -> Any:
    arguments = ({k: v for k, v in (one or {}).items() if v is not None} for one in row["kwargs"])
    pairs = zip(row["instruction_id_list"], arguments, strict=True)
    return [{"kind": kind, "arguments": one} for kind, one in pairs]


def calls_of(row: Row) -> Any:
    calls = [
        {one["name"]: {name: [value] for name, value in one["arguments"].items()}}
        for one in row["expected_answers"]
    ]
    return {"functions": row["responses_create_params"]["tools"], "calls": calls}


def schema_of(row: Row) -> Any:
    if row["schema_type"] != "json" or row.get("response_mode") == "tool_call":
        return None
    return {"schema": json.loads(row["schema_str"])}


def grid_of(row: Row) -> Any:
    return [[str(cell) for cell in line] for line in row["expected_output"]]


def expected(row: Row) -> Any:
    return row["expected_answer"]


KINDS: dict[str, tuple[str, Callable[[Row], Any]]] = {
    **dict.fromkeys(("math_with_judge", "math_with_autograder", "polymath"), ("math", expected)),
    **dict.fromkeys(("physics_judge", "ugphysics_judge", "ns_tools"), ("math", expected)),
    "math_with_code": ("math", lambda row: row["expected_result"]),
    **dict.fromkeys(("mcqa", "swerl_llm_judge"), ("choice", options_of)),
    **dict.fromkeys(("gpqa_diamond",), ("choice", options_of)),
    **dict.fromkeys(("arc_agi", "nvarc"), ("grid", grid_of)),
    "reasoning_gym": ("roles", roles_of),
    **dict.fromkeys(("instruction_following", "ifbench"), ("instructions", instructions_of)),
    "code_gen": ("code", lambda row: row["verifier_metadata"]["unit_tests"]),
    "xlam_fc": ("calls", calls_of),
    "structured_outputs": ("json", schema_of),
    "graphwalks": ("list", lambda row: ast.literal_eval(row["expected_answer"])),
    **dict.fromkeys(("hotpotqa_qa", "simpleqa", "omniscience"), ("qa", expected)),
    "equivalence_llm_judge": ("qa", expected),
}


def lines(path: Path) -> Iterator[Row]:
    for line in path.open():
        try:
            yield json.loads(line)
        except ValueError:  # a pointer of Git LFS
            return


def prompt_of(row: Row) -> str:
    given = row["responses_create_params"]["input"]
    return given if isinstance(given, str) else "\n".join(text_of(one) for one in given)


def text_of(message: Row) -> str:
    if message.get("type") == "reasoning":
        return ""
    if message.get("type") == "function_call":
        call = {"name": message["name"], "arguments": json.loads(message["arguments"])}
        return f"<tool_call>{json.dumps(call)}</tool_call>"
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(one.get("text", "") for one in content)


def rollouts(folder: Path) -> Iterator[Row]:
    """Rollouts with the columns of the row that they answer."""
    asked = {prompt_of(row): row for row in lines(folder / "example.jsonl")}
    for path in sorted(folder.glob("example_rollouts*.jsonl")):
        for row in lines(path):
            if "reward" in row and "response" in row:
                yield {**asked.get(prompt_of(row), {}), **row}


def main(root: Path) -> None:
    """Judge and print."""
    every = (row for path in root.rglob("example_rollouts*.jsonl") for row in lines(path))
    count = sum("reward" in row and "response" in row for row in every)
    sums: Counter[str] = Counter()
    for server, (verifier, reference_of) in KINDS.items():
        rows = []
        for row in rollouts(root / "resources_servers" / server / "data"):
            try:
                reference = reference_of(row)
            except KeyError:  # the row that it answers is not in the wheel
                reference = None
            if reference is None:
                sums["no reference in the wheel"] += 1
                continue
            output = [text_of(one) for one in row["response"]["output"]]
            columns = {"prompt": prompt_of(row), "reference": reference}
            rows.append({**columns, "completion": "\n".join(output), "theirs": row["reward"]})
        others = []
        env = rlvr.make("rows-v4", verifier=verifier)
        for one in rlvr.score(env, rows, on_error=lambda _, why, to=others: to.append(str(why))):
            verdict, theirs = one.score.verdict, one.item.row["theirs"]
            if verdict.correct != (theirs >= 1):
                tail = f"{str(one.item.task.reference)[:90]} | …{one.item.completion.text[-120:]!r}"
                others.append(f"{theirs:g}, ours {verdict.outcome}: {verdict.why[:120]} | {tail}")
        sums.update(scored=len(rows), agree=len(rows) - len(others))
        print(
            f"{server} ({verifier}): {len(rows) - len(others)} of {len(rows)}",
            *others,
            sep="\n    ",
        )
    print(f"{count} rollouts with rewards: {dict(sums)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
