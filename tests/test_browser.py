"""Lesson 00 as a learner meets it: JupyterLab in a real browser, in both languages."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from playwright.sync_api import Locator, Page, sync_playwright

from tests.conftest import find

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[1]
TOKEN = "a-token-for-this-test-only"
RUN_SECONDS = 240.0
CHROMIUM = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
FIGURE = ".jp-OutputArea-output.js-plotly-plot .main-svg"
TABLE = ".jp-OutputArea-output table:has(th:text-is('rank')):has(th:text-is('pid'))"


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab over a copy of the course."""

    url: str
    folder: Path
    processes: Callable[[], list[psutil.Process]]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder, private = tmp_path_factory.mktemp("course"), tmp_path_factory.mktemp("jupyter")
    for part in ("notebooks", "data"):
        shutil.copytree(ROOT / part, folder / part)
    places = ["CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"]
    env = {**os.environ, **{f"JUPYTER_{place}": str(private / place) for place in places}}
    env |= {"IPYTHONDIR": str(private), "JUPYTERLAB_WORKSPACES_DIR": str(private / "workspaces")}
    env |= {"JUPYTERLAB_SETTINGS_DIR": str(private / "settings")}
    env |= {"JUPYTER_CONFIG_PATH": str(ROOT / ".jupyter")}  # as `make lab` has it
    command = [sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser"]
    command += [f"--port={free_port()}", f"--IdentityProvider.token={TOKEN}"]
    log = private / "log"
    with log.open("w") as out:
        server = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=out)
    try:
        yield Lab(address(server, private, log), folder, lambda: family(server))
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(30)
        server.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def address(server: subprocess.Popen[bytes], private: Path, log: Path) -> str:
    """Wait for the server's own note of its address: it may have moved to another port."""
    for _ in range(600):
        for note in (private / "RUNTIME_DIR").glob("jpserver-*.json"):
            with contextlib.suppress(ValueError):
                return str(json.loads(note.read_text())["url"]).rstrip("/")
        assert server.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def family(server: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(server.pid).children(recursive=True)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find("chromium"), args=CHROMIUM)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        try:
            yield page
        finally:
            page.screenshot(path=tmp_path / "last.png")
            browser.close()


def saved(path: Path) -> Any:
    """The notebook as JupyterLab saved it: it may be writing the file at this very moment."""
    for _ in range(100):
        with contextlib.suppress(ValueError):
            return json.loads(path.read_text("utf-8"))
        time.sleep(0.1)
    raise AssertionError(f"no whole notebook in {path} for 10 s")


def forget_counts(path: Path) -> Any:
    """Take out the execution counts: those found later come from this run."""
    notebook = saved(path)
    for cell in code_cells(notebook):
        cell["execution_count"] = None
    path.write_text(json.dumps(notebook, ensure_ascii=False), "utf-8")
    return notebook


def code_cells(notebook: Any) -> list[Any]:
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [cell for cell in cells if "".join(cell["source"]).strip()]


def scroll_to(page: Page, what: str) -> Locator:
    """Turn the wheel from the top until it is seen: JupyterLab may draw only what is near."""
    found = page.locator(what).first
    page.locator(".jp-NotebookPanel-notebook").hover()
    page.mouse.wheel(0, -100_000)
    for _ in range(200):
        page.wait_for_timeout(100)
        if found.count():
            found.evaluate("element => element.scrollIntoView({block: 'center'})")
            found.wait_for(state="visible")
            page.wait_for_timeout(500)  # it may still move: cells above get their height late
            found.evaluate("element => element.scrollIntoView({block: 'center'})")
            assert is_on_screen(page, found)
            return found
        page.mouse.wheel(0, 300)
    raise AssertionError(f"not to be seen in the notebook: {what}")


def is_on_screen(page: Page, what: Locator) -> bool:
    box, screen = what.bounding_box(), page.viewport_size
    if box is None or screen is None:
        return False
    centre = box["y"] + box["height"] / 2
    return box["width"] > 100 and box["height"] > 50 and 0 < centre < screen["height"]


def run_all(page: Page, path: Path) -> list[Any]:
    """Run every cell from the menu; the code cells once all of them have run."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    until = time.monotonic() + RUN_SECONDS
    while True:
        page.wait_for_timeout(1000)
        page.keyboard.press("Control+s")
        cells = code_cells(saved(path))
        if all(cell["execution_count"] for cell in cells):
            break
        assert time.monotonic() < until, [c["source"] for c in cells if not c["execution_count"]]
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=30_000)
    return cells


def errors(cells: list[Any]) -> list[str]:
    return [
        f"{''.join(cell['source'])}\n{output['ename']}: {output['evalue']}"
        for cell in cells
        if "raises-exception" not in cell["metadata"].get("tags", [])
        for output in cell["outputs"]
        if output["output_type"] == "error"
    ]


def strangers(urls: list[str]) -> set[str | None]:
    """Hosts other than this machine that the page asked for something."""
    asked = [urlsplit(url) for url in urls]
    hosts = {a.hostname for a in asked if a.scheme in ("http", "https", "ws", "wss")}
    return hosts - {"localhost", "127.0.0.1"}


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_lesson_00_runs_in_jupyterlab(lab: Lab, page: Page, lang: str, tmp_path: Path) -> None:
    (path,) = sorted((lab.folder / "notebooks" / lang).glob("00_*.ipynb"))
    forget_counts(path)
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.goto(f"{lab.url}/lab/tree/{path.relative_to(lab.folder)}?token={TOKEN}&reset")
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)

    scroll_to(page, FIGURE)
    page.screenshot(path=tmp_path / f"{lang}-stored.png")
    assert all(not c["execution_count"] for c in code_cells(saved(path)))

    cells = run_all(page, path)
    assert errors(cells) == []
    scroll_to(page, TABLE)
    page.screenshot(path=tmp_path / f"{lang}-table.png")
    scroll_to(page, FIGURE)
    page.screenshot(path=tmp_path / f"{lang}-figure.png")

    assert page.locator(".jp-Dialog, .Toastify__toast").count() == 0
    assert strangers(urls) == set()


def test_closing_jupyterlab_leaves_nothing(lab: Lab) -> None:
    """Runs last: the kernels of the lessons and their ranks end with the server."""
    before = lab.processes()
    assert before, "the kernels above must still be there"
    server = before[0].parent()
    assert server is not None
    server.terminate()
    _, alive = psutil.wait_procs(before, timeout=30)
    assert [" ".join(p.cmdline()) for p in alive] == []
