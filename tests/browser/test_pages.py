"""The viewer in Chromium: every kind of page, keys, narrow and dark screens, hostile texts, accessibility."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlvr
from rlvr.algo.judge.vectors import vectors
from rlvr.data.rollouts import write_rollouts
from rlvr.data.step_files import StepFile, write_step
from rlvr.testing import check
from rlvr.testing.audit import audit
from tests.environments import Trials
from tests.json_lines import write_json_lines
from tests.viewer.made import record, rollouts, run_folder

PICTURES = os.environ.get("RLVR_PICTURES")
"""A folder for a picture of every page; none are taken without it."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A scored file, two runs, of which one has a step that departs, an audit and a check."""
    folder = tmp_path_factory.mktemp("shown")
    rows = [{"task": n, "completion": str(n + n % 2), "label": n % 3 > 0} for n in range(1, 12)]
    reports = {
        "audit": audit(Trials(), rows, workers=0),
        "check": check(rlvr.make("qa-v4"), tasks=1, only=("tasks",)),
    }
    for name, report in reports.items():
        (folder / f"{name}.json").write_text(json.dumps(report.as_dict()))
    scored = write_json_lines(
        folder / "scored.jsonl", [record(i, reference="7", env="sums") for i in range(60)]
    )
    run = run_folder(folder / "a")
    step = next(step for name, step in vectors() if name == "grpo-plain")
    head = {**step.head, "step": 1, "texts": ["The answer is \\boxed{7}."] * 8}
    arrays = {**step.arrays, "advantages": step.arrays["advantages"] + np.float32(0.25)}
    write_step(run / "steps" / "step-00000001.safetensors", StepFile(head, arrays))
    return [
        scored,
        run,
        run_folder(folder / "b", lr=1e-4),
        folder / "audit.json",
        folder / "check.json",
        write_json_lines(
            folder / "again.jsonl",
            [
                record(i, reference="7", env="sums", **({"outcome": "wrong"} if i == 4 else {}))
                for i in range(61)
            ],
        ),
    ]


PAGES = {
    "home": "/",
    "home grouped": "/?group=settings.lr",
    "comparison": "/compare?runs=0,5",
    "scored": "/0/",
    "filtered": "/0/rows?outcome=wrong&q=First",
    "row": "/0/row/3",
    "row rendered": "/0/row/3?view=rendered",
    "difference": "/0/diff/0/3",
    "group": "/0/group?task=sums/0&env=sums",
    "run": "/1/",
    "rollouts": "/1/rows?step=1",
    "task across steps": "/1/rows?task=0",
    "overlay": "/overlay?runs=1,2",
    "heat": "/heat?runs=1",
    "heat of files": "/heat?runs=0,5",
    "changes": "/1/changes?step=3&before=1",
    "step": "/1/step/step-00000001",
    "tokens": f"/1/row/{(1 << 32) + 2}?colour=change",
    "slices": "/0/rows?by=length",
    "disagreements": "/compare?a=0&b=5",
    "audit": "/3/",
    "check": "/4/",
    "missing": "/0/row/999999",
}


def picture(driver: Any, name: str) -> None:
    if PICTURES:
        Path(PICTURES).mkdir(exist_ok=True)
        driver.save_screenshot(str(Path(PICTURES) / f"{name.replace(' ', '-')}.png"))


def open_whole(driver: Any, address: str) -> None:
    """Open a page of which all rows have been read."""
    for _ in range(20):
        driver.get(address)
        if "Still reading" not in driver.page_source:
            return
    raise AssertionError(f"{address} is still being read")


def complaints(driver: Any) -> list[str]:
    """What the browser wrote to its console, but for pages that are not there."""
    return [
        it["message"] for it in driver.get_log("browser") if "404 (Not Found)" not in it["message"]
    ]


def test_pages_are_accessible_and_load_without_a_complaint(driver, serve, shown):
    """By axe-core's rules for WCAG 2 A and AA, in light and dark: names, contrast, order of headings, labels."""
    axe_selenium = pytest.importorskip(
        "axe_selenium_python", reason="pip install -c constraints.txt axe-selenium-python"
    )
    address = serve(*shown)
    for scheme in ("light", "dark"):
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        for name, path in PAGES.items():
            open_whole(
                driver, address + path
            )  # a page that renews itself meanwhile would end the look at it
            picture(driver, f"{name} {scheme}")
            assert complaints(driver) == [], name
            axe = axe_selenium.Axe(driver)
            axe.inject()
            found = axe.run(options={"runOnly": ["wcag2a", "wcag2aa"]})["violations"]
            said = [
                f"{it['id']}: {[node['html'][:120] for node in it['nodes'][:3]]}" for it in found
            ]
            assert not said, f"{name}, {scheme}: {said}"


def test_no_page_is_wider_than_a_telephone(driver, serve, shown):
    """Tables scroll inside of themselves, if at all; the page does not scroll to the side."""
    address = serve(*shown)
    try:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                               {"width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": True})  # fmt: skip
        for name, path in PAGES.items():
            open_whole(driver, address + path)
            picture(driver, f"{name} narrow")
            wide = driver.execute_script("return document.documentElement.scrollWidth")
            assert wide <= 390, f"{name} is {wide} pixels wide"
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_keys_go_through_rows(driver, serve, shown):
    """j and k move, Enter opens, n goes to the next row, / to the search."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    driver.get(serve(*shown) + "/0/rows")
    body = driver.find_element(By.TAG_NAME, "body")
    body.send_keys("jjk")
    first = driver.switch_to.active_element.get_attribute("href")
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert driver.current_url == first
    number = int(first.rpartition("/")[2])
    driver.find_element(By.TAG_NAME, "body").send_keys("n")
    assert driver.current_url.endswith(f"/row/{number + 1}")
    driver.get(driver.current_url.partition("/0/")[0] + "/0/rows")
    driver.find_element(By.TAG_NAME, "body").send_keys("/")
    assert driver.switch_to.active_element.get_attribute("name") == "q"


HOSTILE = {
    "script": "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"></pre></main>",
    "long": "x" * 1_000_000,
    "lines": "\n" * 1_000_000 + "end",
    "direction": "\u202egnorw\u2066 \u200f",
    "ansi": "\x1b[2J\x1b]0;owned\x07",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_completion_shows_as_text(name: str, driver, serve, tmp_path: Path):
    """No script runs, no image is asked for, the rest of the page stays where it is."""
    from selenium.webdriver.common.by import By

    row = record(
        0,
        completion=HOSTILE[name],
        why=f"other: {HOSTILE[name][:300]}",
        prompt=HOSTILE[name][:5000],
    )
    address = serve(write_json_lines(tmp_path / "hostile.jsonl", [row, record(1)]))
    for path in ("/0/", "/0/row/0", "/0/group?task=sums/0&env=even"):
        driver.get(address + path)
        picture(driver, f"hostile {name} {path.count('/')}")
        assert driver.title != "owned"
        assert complaints(driver) == []
        assert driver.find_element(By.TAG_NAME, "footer").is_displayed()
        assert driver.execute_script("return document.querySelectorAll('script').length") == 1
        assert not driver.find_elements(By.TAG_NAME, "img")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tokens_and_calls_show_as_text(name: str, driver, serve, tmp_path: Path):
    """In coloured tokens, turns, reasons that changed and names of parts."""
    run, hostile = run_folder(tmp_path / "run"), HOSTILE[name]
    call = {
        "name": hostile[:100],
        "arguments": hostile,
        "reply": hostile,
        "error": False,
        "seconds": 0.0,
    }
    changed = {
        "completion": hostile, "why": f"{hostile[:50]}: x", "task": hostile[:200], "env": hostile[:50],
        "tokens": [hostile[:5000]] * 3, "parts": {hostile[:50]: 1.0}, "dropped": hostile[:50],
        "episode": [{"text": hostile, "calls": [call], "user": hostile}],
    }  # fmt: skip
    write_rollouts(
        run / "rollouts" / "step-00000003.parquet", [{**row, **changed} for row in rollouts(3)]
    )
    address = serve(run)
    for path in (
        f"/0/row/{3 << 32}?colour=probability",
        "/0/changes?step=3&before=1",
        "/0/rows?step=3&by=env",
    ):
        open_whole(driver, address + path)
        picture(driver, f"hostile tokens {name} {path[3:6]}")
        assert driver.title != "owned"
        assert complaints(driver) == []
        driver.execute_script(
            "for (const it of document.querySelectorAll('details')) it.open = true"
        )
        assert driver.find_element("css selector", "footer").is_displayed()
        assert driver.execute_script("return document.querySelectorAll('script').length") == 1
        assert not driver.find_elements("css selector", "img")


def test_two_views_of_one_file_at_once_show_the_same(driver, serve, shown):
    """Each has an index of its own; an address with filters, sent to somebody else, shows what it showed here."""
    pages = []
    for address in (serve(*shown), serve(*shown)):
        open_whole(driver, f"{address}/0/rows?outcome=wrong&truncated=1&order=longest")
        pages.append(driver.find_element("css selector", "table.rows").text)
    assert pages[0] == pages[1]
    assert "different-number" in pages[0]
