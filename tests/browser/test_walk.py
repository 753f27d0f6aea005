"""What a person asks when a run goes wrong, each in at most four clicks from the run's page (docs/using/viewing.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.story import story
from tests.browser.test_pages import complaints, open_whole, picture


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the story."""
    return story(tmp_path_factory.mktemp("runs") / "adder")


class Reader:
    """Counts clicks, and reads what is on the page."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver, self.clicks = driver, 0
        open_whole(driver, f"{address}/0/rows")  # all has been read before the reader comes
        driver.get(f"{address}/0/")

    def click(self, how: str, what: str) -> None:
        link = self.driver.find_element(how, what)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
        link.click()
        self.clicks += 1
        assert complaints(self.driver) == []

    def text(self) -> str:
        return str(self.driver.find_element("css selector", "main").text)

    def lines(self, begin: str) -> list[str]:
        return [line for line in self.text().splitlines() if line.startswith(begin)]


@pytest.fixture
def reader(driver, serve, run: Path) -> Reader:
    return Reader(driver, serve(run))


def changes(reader: Reader) -> None:
    """Two clicks: the dot of step 80 on an axis, and what changed."""
    reader.click("css selector", 'svg a[href="/0/rows?step=80"]')
    reader.click("partial link text", "What changed since step 70")


def test_why_did_the_reward_fall_at_step_80_and_which_reason_grew(reader: Reader):
    """The box is missing in half of the completions: at the second click; two more show one of them."""
    picture(reader.driver, "walk run")
    changes(reader)
    picture(reader.driver, "walk changes")
    [mean] = reader.lines("mean reward")
    before, now = map(float, mean.split()[2:])
    assert now < before - 0.1
    assert reader.lines("unparsed")[0].startswith("unparsed 0 ")
    assert "no-box 0 " in reader.text()
    reader.click("link text", "no-box")
    reader.click("css selector", "a.row")
    picture(reader.driver, "walk row")
    assert "no-box: there is no \\boxed{} in the completion" in reader.text()
    assert "Let us be thorough" in reader.text()
    assert reader.clicks <= 4
    reader.driver.get(f"{reader.driver.current_url}?colour=probability")
    picture(reader.driver, "walk tokens")


def test_which_tasks_flipped(reader: Reader):
    """The worst first, against the last step that sampled each; a third click shows its group, a fourth the task."""
    changes(reader)
    assert "12 tasks of this step were sampled before" in reader.text()
    assert "solved less often" in reader.text()
    reader.click("css selector", 'table a.row[href*="/group?"]')
    picture(reader.driver, "walk group")
    assert reader.driver.find_elements("css selector", "article.side")
    reader.click("partial link text", "this task across steps")
    picture(reader.driver, "walk task")
    assert "this task by step" in reader.text()
    assert reader.clicks <= 4


def test_is_a_part_hacked(reader: Reader):
    """A part that pays more and more while the answers get worse, and the completions that it pays for."""
    changes(reader)
    [part] = reader.lines("explains")
    before, now, paid = map(float, part.split()[1:])
    assert now > 1.5 * before
    assert paid > 40
    reader.click("xpath", "//tr[td='explains']//a")
    assert "outcome: not correct" in reader.text()
    assert f"{paid:.0f} rows" in reader.text()
    reader.click("css selector", "a.row")
    assert "explains 0." in reader.text()
    assert reader.clicks <= 4


def test_what_was_truncated(reader: Reader):
    """One click on the count of a step lists them, the next opens one."""
    reader.click("css selector", 'svg a[href="/0/rows?step=80"]')
    reader.click("link text", "truncated")
    assert "truncated: 1" in reader.text()
    reader.click("css selector", "a.row")
    assert "truncated" in reader.text()
    assert reader.clicks <= 4
