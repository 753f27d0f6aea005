"""Finding the program in a completion."""

import gc
import time

import pytest

from rlvr.verifiers.code import find_program

PROMPT = 'import math\n\n\ndef helper(x):\n    return x\n\n\ndef area(r: float) -> float:\n    """Of a circle."""\n'


def code(text: str, language: str = "python", **asked: str) -> str | None:
    found = find_program(text, language, **asked)
    return None if found is None else found.text


@pytest.mark.parametrize(
    "info",
    ["python", "py", "Python", "python3", "PYTHON", " python", "{.python}", "python title=a", ""],
)
def test_a_block_is_found_under_each_of_its_names(info: str):
    """Also with none."""
    assert code(f"So:\n\n```{info}\nx = 1\n```\nDone.") == "x = 1\n"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\na\n```\ntext\n```python\nb\n```", "b\n"),  # the last one
        ("```python\na\n```\nIt prints\n```\n42\n```", "a\n"),  # a bare one is often its output
        ("```python\na\n```\n```json\n{}\n```\n```text\n1\n```", "a\n"),
        ("```\na\n```\n```\nb\n```", "b\n"),
        ("~~~python\na\n~~~", "a\n"),
        ("````python\na = '''\n```\n'''\n````", "a = '''\n```\n'''\n"),  # a longer fence is closed by a longer one
        ("```python\na = '```'\n```", "a = '```'\n"),
        ("1. So:\n   ```python\n   if a:\n       b\n   ```", "if a:\n    b\n"),  # in a list
        ("```python\r\na\r\nb\r\n```\r\n", "a\nb\n"),
        ("```python\na\n", "a\n\n"),  # cut off
        ("```python\na\n```\n```python\nb", "b\n"),
        ("<answer>\na = 1\n</answer>", "a = 1"),
        ("<answer>\n```python\na\n```\n</answer>", "a\n"),
        ("```python\nb\n```\n<answer>a = 1</answer>", "a = 1"),
        ("<answer>a = 1</answer> no: <answer>b = 1</answer>", "b = 1"),
        ("<answer>a = 1", "a = 1"),  # the end was the sampler's stop string
        ("```python\nprint('<answer>')\n```", "print('<answer>')\n"),
        ("```python3\nprint('<answer>')\n```", "print('<answer>')\n"),  # a tag at the very end of a block
        ('```python\nd = """\n    ```\n    1\n    ```\n"""\n```', 'd = """\n    ```\n    1\n    ```\n"""\n'),
        ("```python3.11\na\n```", "a\n"),
        ("n: int = int(input())\nprint(n)", "n: int = int(input())\nprint(n)"),
        ("*a, b = input().split()\nprint(b)", "*a, b = input().split()\nprint(b)"),
        ("[a, b] = input().split()\nprint(b)", "[a, b] = input().split()\nprint(b)"),
        ("<think>```python\na\n```</think>```python\nb\n```", "b\n"),
        ("So: ```python\na\n```", None),  # a fence begins its line
        ("import sys\nprint(sys.stdin.read())", "import sys\nprint(sys.stdin.read())"),
        ("n = int(input())\nprint(n)", "n = int(input())\nprint(n)"),
        ("a, b = map(int, input().split())", "a, b = map(int, input().split())"),
        ("#!/usr/bin/env python3\nprint(1)", "#!/usr/bin/env python3\nprint(1)"),
    ],
)  # fmt: skip
def test_one_rule_for_each_way_to_mark_a_program(text: str, program: str | None):
    """docs/reference/code.md has them in words."""
    assert code(text) == program


@pytest.mark.parametrize(
    "text",
    [
        "", " \n", "I do not know.", "Sure! Here is how.", "Answer: 5", "```python\n```", "```json\n{}\n```",
        "<answer></answer>", "<think>```python\na\n```", "The answer is 5 = 5.", "\x00", "\ud800",
    ],
)  # fmt: skip
def test_no_program_is_no_answer(text: str):
    """Prose, empty blocks, other languages; and a model that is still thinking has not answered."""
    assert find_program(text) is None


def test_the_block_that_defines_the_function_comes_before_one_that_calls_it():
    """Models like to show how to use what they wrote."""
    text = (
        "```python\ndef area(r):\n    return r\n```\nFor example:\n```python\nprint(area(2))\n```\n"
    )
    assert code(text, entry_point="area") == "def area(r):\n    return r\n"
    assert code(text) == "print(area(2))\n"
    assert code(text, entry_point="perimeter") == "print(area(2))\n"
    assert "class Solution" in (
        code("```python\nclass Solution:\n  def f(self): pass\n```\n```\nf()\n```", entry_point="f")
        or ""
    )


@pytest.mark.parametrize(
    ("language", "text", "program"),
    [
        ("cpp", "```cpp\nint main(){}\n```", "int main(){}\n"),
        ("cpp", "```c++\nint main(){}\n```\n```python\nx\n```", "int main(){}\n"),
        ("cpp", "#include <cstdio>\nint main(){}", "#include <cstdio>\nint main(){}"),
        ("javascript", "```js\nlet a\n```", "let a\n"),
        ("javascript", "console.log(1)", "console.log(1)"),
        ("bash", "```sh\ncat\n```", "cat\n"),
        ("bash", "read n; echo $n", "read n; echo $n"),
    ],
)
def test_other_languages_have_their_own_names(language: str, text: str, program: str):
    """A block in another language does not count."""
    assert code(text, language) == program
    assert code("```ruby\nputs 1\n```", language) is None


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("    return math.pi * r * r\n", "    return math.pi * r * r\n"),
        ("\n\n    return r\n", "\n\n    return r\n"),
        ("\treturn r\n", "\treturn r\n"),
        ("  return r\n", "  return r\n"),
        ("    x: list[int] = [1]\n    return x\n", "    x: list[int] = [1]\n    return x\n"),
        ("    (a, b) = r\n    return a\n", "    (a, b) = r\n    return a\n"),
        ("    return r\n\ndef other():\n    pass\n", "    return r\n\n"),
        ("    return r\n\n\nassert area(1) == 3\n", "    return r\n\n\n"),
        ("    return r\n```\n\nThis works because …", "    return r\n"),
        ("    return r\n<|endoftext|>import os", "    return r\n"),
        ("    x = '''\nnot code\n'''\n    return x\nprint(1)", "    x = '''\nnot code\n'''\n    return x\n"),
        ("    x = [\n1,\n]\n    return x\nprint(1)", "    x = [\n1,\n]\n    return x\n"),
        ("    x = 1 + \\\n2\n    return x\nprint(1)", "    x = 1 + \\\n2\n    return x\n"),
        ("    x = '(\n    return x\nprint(1)", "    x = '(\n    return x\n"),
        ("    # why ' not (\n    return r\nprint(1)", "    # why ' not (\n    return r\n"),
        ("    if r:\n# ends nothing\n        return r\nprint(1)", "    if r:\n# ends nothing\n        return r\n"),
        ("    return 'it''s \\' # (' + \"[\"\nprint(1)", "    return 'it''s \\' # (' + \"[\"\n"),
        ('    """unclosed\nprint(1)', '    """unclosed\nprint(1)'),
    ],
)  # fmt: skip
def test_a_continuation_ends_with_the_function(text: str, body: str):
    """At the first statement at the left edge, outside of strings and brackets: what follows is not the answer."""
    found = find_program(text, prompt=PROMPT, entry_point="area")
    assert found is not None
    assert (found.text, found.method) == (PROMPT + body, "continuation")


def test_a_completion_that_repeats_the_prompt_continues_it():
    """Some samplers return both."""
    assert (
        code(PROMPT + "    return r\nprint(1)", prompt=PROMPT, entry_point="area")
        == PROMPT + "    return r\n"
    )
    crlf = PROMPT.replace("\n", "\r\n")
    assert (
        code(crlf + "    return r\r\n", prompt=crlf, entry_point="area")
        == PROMPT + "    return r\n"
    )
    later = f"\n{PROMPT}    return r\n\nThis is so because …"
    assert code(later, prompt=f"\n\n{PROMPT}", entry_point="area") == PROMPT + "    return r\n\n"


@pytest.mark.parametrize(
    "text",
    [
        "```python\ndef area(r):\n    return r\n```",
        "Here:\n\n```python\nimport math\n\ndef area(r: float) -> float:\n    return r\n```\n",
        "  Here it is:\n```python\ndef area(r):\n    return r\n```",
        "```python\n    return r\n```",
        "```python\nreturn r\n```",
        "```python\nif r:\n    return r\nreturn 0\n```",
        "```\n    if r:\n        return r\n```",
        "return r",
        "if r:\n        return r\n    return 0\n\nprint(1)",  # its first indentation was stripped
        "def area(r):\n    return r",
        "<answer>\n    return r\n</answer>",
    ],
)
def test_a_whole_function_or_its_body_becomes_a_program(text: str):
    """With the prompt's imports and helpers, whichever way it was written."""
    program = code(text, prompt=PROMPT, entry_point="area")
    scope: dict = {}
    exec(program, scope)
    assert scope["area"](3) == 3
    assert scope["helper"](4) == 4


def test_a_future_import_stays_first():
    """Nothing but a docstring may come before it."""
    program = code(
        "```python\nfrom __future__ import annotations\ndef area(r): return r\n```",
        prompt=PROMPT,
        entry_point="area",
    )
    assert program.startswith("from __future__")
    program = code(
        "```python\n# mine\nfrom __future__ import annotations\ndef area(r): return r\n```",
        prompt=PROMPT,
        entry_point="area",
    )
    compile(program, "program", "exec")
    assert "import math" not in program.partition("from __future__")[0]


UNITS = [
    "```", "```\n", "```python\n", "`", "~", " ", "\n", "<answer>", "<think>", '"""', '"""\\', "'\\", "(", "a", "a,",
    "a ", "    x\n#\n",
]  # fmt: skip
ENDS = {" ": ("", "```"), '"""\\': ("    '", ""), "'\\": ("    ", ""), "(": ("    ", "")}


def took_s(unit: str, size: int) -> float:
    """CPU seconds to read so many characters of this unit."""
    before, after = ENDS.get(unit, ("", ""))
    text = before + unit * (size // len(unit)) + after
    gc.freeze()  # what other tests left in this process is not this reader's to walk through
    start = time.process_time()
    find_program(text, prompt=PROMPT, entry_point="area")
    find_program(text, entry_point="area")
    find_program(text, "javascript")
    took = time.process_time() - start
    gc.unfreeze()
    return took


@pytest.mark.parametrize("unit", UNITS, ids=ascii)
def test_hostile_text_is_read_in_linear_time(unit: str):
    """Whatever a policy finds to repeat: 16 times the text takes 16 times as long, and not 256 times."""
    limit_s = 64 * max(min(took_s(unit, 20_000) for _ in range(3)), 0.005)
    assert any(
        took_s(unit, 320_000) < limit_s for _ in range(3)
    )  # a busy machine may slow one reading down


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS, ids=ascii)
def test_a_hostile_megabyte_is_read_in_3_cpu_seconds(unit: str):
    """The ratio above does not see a reader that has become slow at every size."""
    assert any(took_s(unit, 10**6) < 3 for _ in range(3))
