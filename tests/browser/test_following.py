"""A page of what is still being written follows it, and the reader keeps the place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.data.rollouts import write_rollouts
from rlvr.data.rows import Journal
from tests.browser.test_pages import complaints, open_whole, picture
from tests.processes import PATIENCE_S
from tests.viewer.made import record, rollouts, run_folder

TRAINS = """
import fcntl, json, sys
from pathlib import Path
from rlvr.data.rollouts import write_rollouts
from tests.viewer.made import rollouts

run = Path(sys.argv[1])
with (run / ".lock").open("a") as lock, (run / "metrics.jsonl").open("a") as metrics:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("trains", flush=True)
    for line in sys.stdin:
        what, step = line.split()
        text = json.dumps({"step": int(step), "accuracy": 0.5, "reward": 0.25}) + "\\n"
        if what == "half":
            metrics.write(text[:20])
            (run / "rollouts" / f"step-{int(step):08d}.parquet").write_bytes(b"PAR1 and half a row group")
        else:
            write_rollouts(run / "rollouts" / f"step-{int(step):08d}.parquet", rollouts(int(step)))
            metrics.write(text[20:] if what == "rest" else text)
        metrics.flush()
        print(what, flush=True)
"""


class Training:
    """A process that holds the lock of a run and writes a step when it is told to."""

    def __init__(self, run: Path) -> None:
        settings = json.loads((run / "config.json").read_text())
        settings["settings"]["steps"] = 6
        (run / "config.json").write_text(json.dumps(settings))
        command = [sys.executable, "-c", TRAINS, str(run)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "trains\n"

    def write(self, what: str, step: int) -> None:
        self.process.stdin.write(f"{what} {step}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"{what}\n"

    def end(self) -> None:
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_S) == 0


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    run = run_folder(tmp_path / "run")
    training = Training(run)
    with training.process:
        yield training
        training.process.kill()


def text(driver: Any) -> str:
    return str(driver.find_element("css selector", "main").text)


def renew(driver: Any) -> None:
    """What the page does every few seconds."""
    driver.execute_async_script("renew().then(arguments[arguments.length - 1])")


def test_curves_grow_without_losing_the_place(driver, serve, training, tmp_path: Path):
    """By itself, in the browser; half a line and half a file are not broken, and a run that has ended says so."""
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get(serve(tmp_path / "run") + "/0/")
    assert "Being written: step 3 of 6." in text(driver)
    assert driver.find_element("id", "follow").is_displayed()
    points = (
        "return document.querySelector('svg polyline').getAttribute('points').split(' ').length"
    )
    assert driver.execute_script(points) == 4
    details = driver.find_element("css selector", "details")
    details.find_element("css selector", "summary").click()
    driver.execute_script("arguments[0].scrollIntoView()", details)
    place = "return arguments[0].getBoundingClientRect().top"
    top = driver.execute_script(place, details)

    training.write("step", 4)
    WebDriverWait(driver, PATIENCE_S).until(lambda it: "Being written: step 4 of 6." in text(it))
    training.write("half", 5)
    renew(driver)
    assert "step 4 of 6" in text(driver)
    assert "cannot be read" not in text(driver)
    training.write("rest", 5)
    renew(driver)
    assert driver.execute_script(points) == 6
    assert details.get_attribute("open")
    assert abs(driver.execute_script(place, details) - top) < 2
    assert driver.find_element("link text", "5").get_attribute("href").endswith("/0/rows?step=5")
    picture(driver, "run that is being written")

    training.write("step", 6)
    training.end()
    renew(driver)
    assert "Ended: step 6 of 6." in text(driver)
    assert not driver.find_element("id", "follow").is_displayed()
    assert complaints(driver) == []


def test_lists_grow_without_losing_filters_focus_or_what_is_typed(
    driver, serve, training, tmp_path: Path
):
    """New rollouts come in where the order puts them; the reader stays at the same row."""
    open_whole(driver, serve(tmp_path / "run") + "/0/rows?outcome=wrong&order=longest")
    rows = "return [...document.querySelectorAll('a.row')].map(it => it.getAttribute('href'))"
    before = driver.execute_script(rows)
    assert len(before) == 4
    driver.find_element("name", "q").send_keys("half of a wo")
    driver.find_element("css selector", "main").click()
    driver.find_element("tag name", "body").send_keys("jj")
    at = driver.switch_to.active_element.get_attribute("href")
    assert at.endswith(before[1])

    training.write("half", 4)
    renew(driver)
    assert driver.execute_script(rows) == before
    assert "cut short, or still being written" in text(driver)
    training.write("rest", 4)
    training.write("step", 2)  # of a run that went back
    renew(driver)
    after = driver.execute_script(rows)
    assert len(after) == 6  # step 2 has two that are wrong, step 4 none
    assert set(before) < set(after)
    assert "cut short" not in text(driver)
    assert "outcome: wrong" in text(driver)
    assert driver.switch_to.active_element.get_attribute("href") == at
    assert driver.find_element("name", "q").get_attribute("value") == "half of a wo"
    assert complaints(driver) == []


def test_turns_stay_open_and_following_can_be_stopped(driver, serve, training, tmp_path: Path):
    """A row's page is renewed too, for the way to the next row; the button stops that, also on other pages."""
    from selenium.webdriver.support.ui import WebDriverWait

    run = tmp_path / "run"
    call = {"name": "look", "arguments": "{}", "reply": "a reply", "error": False, "seconds": 0.0}
    episode = [{"text": "a turn", "calls": [call], "user": ""}]
    write_rollouts(
        run / "rollouts" / "step-00000003.parquet",
        [{**row, "episode": episode} for row in rollouts(3)],
    )
    address = serve(run)
    driver.get(f"{address}/0/row/{(3 << 32) + 3}")
    assert not driver.find_elements("link text", "next row")
    for summary in driver.find_elements("css selector", "details summary"):
        if "turn 1" in summary.text or "call of look" in summary.text:
            summary.click()
    reply = next(
        it for it in driver.find_elements("css selector", "details pre") if it.text == "a reply"
    )
    assert reply.is_displayed()
    training.write("step", 4)
    WebDriverWait(driver, PATIENCE_S).until(lambda it: it.find_elements("link text", "next row"))
    assert reply.is_displayed()

    driver.find_element("id", "follow").click()
    driver.get(f"{address}/0/")
    assert driver.find_element("id", "follow").text == "follow"
    training.write("step", 5)
    renew(driver)
    assert "step 4 of 6" in text(driver)
    driver.find_element("id", "follow").click()
    renew(driver)
    assert "step 5 of 6" in text(driver)
    assert complaints(driver) == []


def test_a_scored_file_is_followed_to_its_end(driver, serve, tmp_path: Path):
    """Half a line is not shown; when the file is whole it has another name, and the page says so."""
    with Journal(tmp_path / "scored.jsonl") as journal:
        for number in range(3):
            journal.write(record(number))
        driver.get(serve(journal.partial) + "/0/rows")
        assert "3 rows" in text(driver)
        with journal.partial.open("ab") as file:
            file.write(b'{"id": 3, "outcome": "wr')
        renew(driver)
        assert "3 rows" in text(driver)
        assert "broken" not in driver.find_element("css selector", ".facets").text
        with journal.partial.open("r+b") as file:
            file.truncate(file.seek(0, 2) - 24)
        journal.write(record(3))
        renew(driver)
        assert "4 rows" in text(driver)
        journal.finish()
    renew(driver)
    assert "Ended: it is whole, and called scored.jsonl now." in text(driver)
    assert len(driver.find_elements("css selector", "a.row")) == 4
    assert not driver.find_element("id", "follow").is_displayed()
