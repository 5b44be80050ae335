"""A page with everything on it, and a browser to open it with."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.paper.page import render_page
from tests.paper.page.study import study

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 3"><script>alert(1)</script></svg>'


@pytest.fixture(scope="session")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    (folder / "flows-cora-paper-seed0.svg").write_text(SVG)
    (folder / "flows-cora-paper-seed0.json").write_text(
        '{"figure": "flows", "label": "tsne_flows", "caption": "A <b> & t-SNE.", "seed": 0,'
        ' "dataset": "cora", "fidelity": "paper", "scale": "smoke", "panels": [{"title": "Heat",'
        ' "statistics": {"attention": {"intra_mean": 0.25, "inter_mean": 0.125}}}]}'
    )
    (folder / "broken.svg").write_text(SVG)
    (folder / "broken.json").write_text("{")
    return folder


@pytest.fixture(scope="session")
def page(figures: Path) -> str:
    return render_page(study(seeds=3), figures=figures)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window; skips where there is none."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    service = pytest.importorskip("selenium.webdriver.chrome.service")
    found = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    for name, path in found.items():
        if path is None:
            pytest.skip(f"{name} is not installed")
    options = selenium.ChromeOptions()
    options.binary_location = found["chromium"]
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = selenium.Chrome(options=options, service=service.Service(found["chromedriver"]))
    try:
        yield driver
    finally:
        driver.quit()
