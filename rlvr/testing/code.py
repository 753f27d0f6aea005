"""What a check reads from an environment's code and reward: texts in the verifier,
weights of forms, judges alone."""

from __future__ import annotations

import inspect
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rlvr.environment import Environment
from rlvr.rewards import Correct
from rlvr.rewards.parts import Format
from rlvr.testing.findings import Findings

__all__ = ["canaries", "check_reward", "constants_of", "phrases_of"]

_MOST_PHRASES: Final = 40
_LENGTHS: Final = range(4, 60)


def phrases_of(env: Environment) -> list[str]:
    """Texts in the code of an author's verifier, as far as it is Python: one of them may be a word
    that opens the door.

    rlvr's own code is left out, and so are docstrings, reasons and formats.

    Args:
        env: the environment.
    """
    phrases = dict.fromkeys(
        text
        for text in constants_of(env)
        # Formats hold braces, and are no phrase that a completion has to say.
        if len(text) in _LENGTHS and "{" not in text and text.strip()
    )
    return list(phrases)[:_MOST_PHRASES]


def constants_of(env: Environment) -> list[str]:
    """All texts in the code of an author's verifier, as far as it is Python, each once; without
    docstrings.

    Args:
        env: the environment.
    """
    primary = env.reward.primary
    roots: list[object] = [type(env).verify]
    if primary is not None and primary.verifier is not None:
        verifier: object = primary.verifier
        # A user's function, a verifier's own methods, and the environment's `verify`.
        roots += [getattr(verifier, "function", None), getattr(type(verifier), "verify", None)]
        roots += [getattr(type(verifier), "judge", None), getattr(type(verifier), "extract", None)]
    owners = [type(env), *([] if primary is None else [type(primary.verifier)])]
    texts = (
        text
        for function in _functions(roots, owners)
        for text in _constants(function.__code__, function.__doc__)
    )
    return list(dict.fromkeys(texts))


def _functions(roots: list[Any], owners: list[type]) -> Iterator[types.FunctionType]:
    """The functions, and those of the same modules and classes that they name, in a few steps."""
    todo = list(roots)
    visited: set[types.FunctionType] = set()
    # An author's module may reach half a library.
    while todo and len(visited) < 100:
        function = inspect.unwrap(todo.pop(0)) if callable(todo[0]) else todo.pop(0)
        function = getattr(function, "__func__", function)
        # Neither ours nor Python's own: their texts open no door.
        if (
            not isinstance(function, types.FunctionType)
            or function in visited
            or _is_ours(function.__module__)
        ):
            continue
        visited.add(function)
        yield function
        module = vars(sys.modules.get(function.__module__, types.ModuleType("none")))
        names = {**function.__globals__, **module}
        todo += [names[name] for name in function.__code__.co_names if name in names]
        todo += [
            getattr(owner, name, None) for owner in owners for name in function.__code__.co_names
        ]
        # What a closure holds, such as a list of accepted words.
        todo += [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]


def _is_ours(module: str | None) -> bool:
    top = (module or "").partition(".")[0]
    return top == "rlvr" or top in sys.stdlib_module_names


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that is bound later
        return False


def _constants(code: types.CodeType, doc: str | None) -> Iterator[str]:
    for value in code.co_consts:
        if isinstance(value, str) and value != doc:
            yield value
        elif isinstance(value, (tuple, frozenset)):
            yield from (item for item in value if isinstance(item, str))
        elif isinstance(value, types.CodeType):
            yield from _constants(value, None)


def canaries(trace: str, answer: str | None) -> Iterator[str]:
    """Completions that leave a file behind if they are evaluated; some have the value of the right
    answer.

    Args:
        trace: path of the file.
        answer: the right answer; None if no short one is known.
    """
    # The file's existence is the proof, so that no output has to be read.
    program = f"open({trace!r}, 'w').close()"
    # The value of the answer behind the program: a verifier that evaluates both would accept it.
    for text in (program, f"[{program}, {answer or 0}][1]", f"({program} or {answer or 0})"):
        yield text
        yield f"\\boxed{{{text}}}"
        yield f"<answer>{text}</answer>"
    yield f"__import__('pathlib').Path({trace!r}).touch()"
    yield json.dumps({"answer": program})
    # YAML's own way to call a function.
    yield (
        f"!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path [{trace!r}]]"
    )


def check_reward(env: Environment, found: Findings) -> None:
    """Check the weights of a reward's parts, and that a judge is not alone.

    Args:
        env: the environment.
        found: where findings go.
    """
    for member in env.members.values():
        _check_forms(member, found)
        _check_judge(member, found)


def _check_forms(env: Environment, found: Findings) -> None:
    """Compare a wrong answer in every form with a right answer in none, all else at its least."""
    reward, forms = env.reward, [leaf for leaf in env.reward.leaves if isinstance(leaf, Format)]
    if reward.primary is None or not forms:
        return
    found.tried("format-outweighs")
    lowest = {leaf.name: leaf.bounds[0] for leaf in reward.leaves}
    wrong = lowest | {leaf.name: leaf.bounds[1] for leaf in forms} | {reward.primary.name: 0.0}
    right = lowest | {leaf.name: leaf.bounds[0] for leaf in forms} | {reward.primary.name: 1.0}
    for leaf in reward.leaves:  # further verifiers say the same as the first
        if isinstance(leaf, Correct):
            wrong[leaf.name], right[leaf.name] = 0.0, 1.0
    in_form, without = reward.evaluate(wrong)[0], reward.evaluate(right)[0]
    gated = (
        without
        <= reward.evaluate({**wrong, **dict.fromkeys((leaf.name for leaf in forms), 0.0)})[0]
    )
    # behind a gate, a right answer without the form earns nothing on purpose
    if in_form >= without and not gated:
        got = (
            f"{reward}: {in_form:g} for a wrong answer in form, {without:g} for a right one without"
        )
        found.add("format-outweighs", got=got, wanted="correctness counts for more")


def _check_judge(env: Environment, found: Findings) -> None:
    primary = env.reward.primary
    verifier: Any = None if primary is None else primary.verifier
    if verifier is None or not hasattr(verifier, "judged"):
        return
    found.tried("judge-alone")
    if verifier.audit is None:
        got, remedy = "no audit", "Fallback(rule, judge), or Judge(…, audit=FILE) of `rlvr audit`"
        found.add("judge-alone", got=got, wanted=remedy)
        return
    try:
        rate = json.loads(Path(verifier.audit).read_text())["total"]["rates"]["false positives"]
        # The upper end of the interval: a rate of few rows proves little.
        high = float(rate["interval"][1])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        found.add("judge-alone", got=f"its audit {verifier.audit} cannot be read: {error!r}")
        return
    if high > verifier.most_false:
        got = (
            f"up to {high:.1%} of wrong answers are accepted, "
            f"by its audit of {rate['n']} wrong ones"
        )
        found.add("judge-alone", got=got, wanted=f"at most {verifier.most_false:.1%}")
