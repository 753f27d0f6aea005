"""Two keys judge verdicts in Chromium, one row after another."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rlvr.data.formats import read_rows
from rlvr.viewer import Labels
from tests.browser.test_overlay import wait
from tests.browser.test_pages import complaints, open_whole, picture
from tests.json_lines import write_json_lines
from tests.viewer.made import record


def test_two_keys_judge_one_verdict_after_another(driver, serve, tmp_path: Path):
    """y and x mark and lead on, s passes over; the counts and the interval stand beside them."""
    from selenium.webdriver.common.action_chains import ActionChains

    scored = write_json_lines(tmp_path / "scored.jsonl", [record(i) for i in range(6)])
    with closing(Labels(tmp_path / "labels.jsonl")) as labels:
        address = serve(scored, labels=labels)
        open_whole(driver, f"{address}/0/rows")
        driver.find_element("link text", "at random").click()
        for place, key in enumerate("yxsy"):
            here = wait(driver, "location.pathname.includes('/row/') && location.href")
            if place == 3:
                picture(driver, "labels")
                said = driver.find_element("css selector", ".marking [role=status]").text
                assert "2 judged, 1 wrong; of 2 drawn at random 1 wrong, 50.0 %" in said
            ActionChains(driver).send_keys(key).perform()
            wait(driver, f"location.href !== {here!r} && document.readyState === 'complete'")
        assert complaints(driver) == []
    kept = [dict(line.row or {}) for line in read_rows(tmp_path / "labels.jsonl")]
    assert [row["verdict_is_right"] for row in kept] == [True, False, True]
    assert len({row["id"] for row in kept}) == 3
