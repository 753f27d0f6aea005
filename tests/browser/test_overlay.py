"""Curves of several runs in Chromium: drawn, zoomed, read by mouse, under the viewer's own policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.browser.story import story
from tests.browser.test_pages import complaints, picture


def wait(driver: Any, what: str) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, 60).until(lambda it: it.execute_script(f"return {what}"))


def test_runs_are_laid_over_each_other(driver, serve, tmp_path: Path):
    """One click from home; the mouse reads every run's value at its step, a drag zooms, a button shows all again."""
    from selenium.webdriver.common.action_chains import ActionChains

    for seed in (7, 8, 9):
        story(tmp_path / "runs" / f"adder-{seed}", seed)
    driver.get(serve(tmp_path / "runs"))
    wait(driver, "!document.body.textContent.includes('Still reading')")
    picture(driver, "home folder")
    driver.find_element("link text", "overlay all 3").click()
    wait(driver, "document.querySelectorAll('figure.plot canvas').length > 1")
    figure = driver.find_element("css selector", "figure.plot")
    over = figure.find_element("css selector", ".u-over")
    ActionChains(driver).move_to_element(over).perform()
    values = wait(
        driver,
        "(() => { const all = [...document.querySelectorAll('figure.plot')[0]"
        ".querySelectorAll('.u-value')].map((it) => it.textContent);"
        " return all.every((it) => it && it !== '--') && all })()",
    )
    assert len(values) == 4
    assert 40 <= float(values[0]) <= 60
    assert all(0 < float(value) < 1 for value in values[1:])
    picture(driver, "overlay")
    ActionChains(driver).move_to_element(over).click_and_hold().move_by_offset(
        60, 0
    ).release().perform()
    assert wait(driver, "range && range[0] > 40 && range[1] < 80 && range")
    driver.find_element("id", "whole").click()
    assert driver.execute_script("return range") is None
    for name in ("bands", "logy", "logx"):
        driver.find_element("name", name).click()
    assert wait(driver, "plots.size > 1")
    assert complaints(driver) == []
