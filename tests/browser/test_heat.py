"""The map of tasks in Chromium: two clicks from a run to the tasks that were lost since a step."""

from __future__ import annotations

from pathlib import Path

from tests.browser.story import story
from tests.browser.test_overlay import wait
from tests.browser.test_pages import complaints, open_whole, picture


def test_which_tasks_were_lost_since_step_50(driver, serve, tmp_path: Path):
    """A click opens the map, another the tasks that were lost; a cell opens its group."""
    from selenium.webdriver.common.action_chains import ActionChains

    address = serve(story(tmp_path / "adder"))
    open_whole(driver, f"{address}/0/rows")
    driver.get(f"{address}/0/")
    driver.find_element("link text", "tasks by step").click()
    assert wait(driver, "document.getElementById('heat').dataset.drawn") == "120"
    picture(driver, "heat")
    canvas = driver.find_element("css selector", "#heat canvas")
    wide, high = canvas.size["width"], canvas.size["height"]
    column = int(wide * (4.5 / 10 - 0.5))  # of step 50, from the middle
    ActionChains(driver).move_to_element_with_offset(
        canvas, column, 7 - high // 2
    ).click().perform()
    wait(driver, "location.search.includes('since=50')")
    assert "From 50 to 100" in driver.find_element("css selector", "main").text
    assert "lost since then" in driver.find_element("css selector", "main").text
    wait(driver, "document.getElementById('heat').dataset.drawn")
    canvas = driver.find_element("css selector", "#heat canvas")
    ActionChains(driver).move_to_element_with_offset(canvas, column, 0).click().perform()
    wait(driver, "location.pathname.endsWith('/group') && location.search.includes('step=50')")
    assert complaints(driver) == []
