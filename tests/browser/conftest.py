"""A real browser, and a viewer that it looks at.  `make test-browser` runs these tests; they need Debian's chromium."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from rlvr.viewer import Shown, viewer_app
from tests.processes import PATIENCE_S


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    """Chromium without a window; as root it takes no sandbox of its own, and it opens our own pages alone."""
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="pip install -c constraints.txt selenium"
    )
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.skip("needs chromium and its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1200,900",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    driver.set_page_load_timeout(PATIENCE_S)
    driver.set_script_timeout(PATIENCE_S)  # axe's rules take seconds, on a loaded machine many
    yield driver
    driver.quit()


@pytest.fixture
def serve(driver: Any) -> Iterator[Any]:
    """A function from paths to the address of a viewer of them."""
    running: list[tuple[uvicorn.Server, threading.Thread, Shown]] = []

    def start(*paths: Path, **options: Any) -> str:
        sources = Shown(paths)
        listening = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            viewer_app(sources, wait_s=PATIENCE_S, **options),
            log_level="error",
            lifespan="off",
            ws="none",
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        running.append((server, thread, sources))
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield start
    driver.get("about:blank")  # a page that follows would miss its server
    driver.get_log("browser")
    for server, thread, sources in running:
        server.should_exit = True
        thread.join(PATIENCE_S)
        sources.close()
