"""Completions rendered in Chromium: formulas are MathML, and 225 payloads run nothing."""

from __future__ import annotations

from pathlib import Path

from tests.browser.test_overlay import wait
from tests.browser.test_pages import complaints, open_whole, picture
from tests.json_lines import write_json_lines
from tests.viewer.hostile import PAYLOADS
from tests.viewer.made import record

TEXT = """## Two ways

Since $x^2 = 4$, we have \\(x = \\pm 2\\), so the sum over both is

$$\\sum_{i=1}^{n} \\frac{i}{2} = \\frac{n(n+1)}{4}$$

| n | sum |
|---|-----|
| 1 | 0.5 |

```python
def total(n: int) -> float:
    return n * (n + 1) / 4  # by the formula
```

The answer is \\boxed{\\frac{1}{2}}.
"""


def test_formulas_are_rendered(driver, serve, tmp_path: Path):
    """By KaTeX, as MathML, under the policy that allows no inline style."""
    row = record(0, completion=TEXT, answer="\\frac{1}{2}", prompt="What is $1/2$?")
    address = serve(write_json_lines(tmp_path / "a.jsonl", [row, record(1, completion=TEXT)]))
    open_whole(driver, f"{address}/0/row/0?view=rendered")
    assert wait(driver, "document.querySelectorAll('math').length") == 5
    assert driver.execute_script("return document.querySelector('mark math') !== null")
    picture(driver, "rendered")
    assert complaints(driver) == []


def test_payloads_run_nothing(driver, serve, tmp_path: Path):
    """Each in a completion and a prompt of a group: no script, no request to elsewhere, no element of theirs."""
    assert len(PAYLOADS) >= 200
    rows = [
        record(i, completion=text, prompt=text, task=f"t{i // 25}", env="e")
        for i, text in enumerate(PAYLOADS)
    ]
    address = serve(write_json_lines(tmp_path / "a.jsonl", rows))
    open_whole(driver, f"{address}/0/rows")
    for group in range(len(PAYLOADS) // 25):
        driver.get(f"{address}/0/group?task=t{group}&env=e&view=rendered")
        wait(driver, "!document.querySelector('.tex:not([data-tex])')")
        assert driver.title != "owned"
        assert complaints(driver) == [], group
        strange = driver.execute_script(
            "return [...document.querySelectorAll('main script, img, iframe, style, form, object, base, "
            "main svg, main [style], main [onerror], .markdown a, .markdown [id], math [href]')]"
            ".map((it) => it.outerHTML)"
        )
        assert strange == [], group
        assert driver.find_element("css selector", "footer").is_displayed()
    row = f"{address}/0/row/{len(PAYLOADS) - 1}?view=rendered"
    driver.get(row)
    assert driver.title != "owned"
