import json
from pathlib import Path
from typing import Any

import pytest

WIDTHS = (1280, 390)


@pytest.fixture(params=WIDTHS)
def opened(request: pytest.FixtureRequest, browser: Any, page: str, tmp_path: Path) -> Any:
    """The page in a window of some width."""
    from selenium.webdriver.support.wait import WebDriverWait

    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    resize(browser, request.param)
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(path.as_uri())
    # On a busy machine the driver can be back before the script has run.
    WebDriverWait(browser, 20).until(
        lambda driver: driver.execute_script(
            "return location.href === arguments[0] && document.readyState === 'complete' "
            "&& document.querySelectorAll('[role=grid]').length > 0",
            path.as_uri(),
        )
    )
    return browser


def resize(browser: Any, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    actions = ActionChains(browser)
    for key in keys:
        actions.send_keys(getattr(Keys, key))
    actions.perform()


def tip(browser: Any) -> str | None:
    """Text of the tooltip; nothing while it is hidden."""
    script = "const t = document.getElementById('tip'); return t.hidden ? null : t.innerText;"
    found: str | None = browser.execute_script(script)
    return found


def focused(browser: Any) -> list[str]:
    script = "const d = document.activeElement.dataset; return [d.row, d.column];"
    found: list[str] = browser.execute_script(script)
    return found


def focus(browser: Any, selector: str) -> None:
    browser.execute_script("document.querySelector(arguments[0]).focus()", selector)


@pytest.mark.browser
def test_nothing_is_loaded_and_nothing_goes_wrong(opened: Any) -> None:
    sent = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    urls = [
        message["params"]["request"]["url"]
        for message in sent
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert urls
    assert {url.partition(":")[0] for url in urls} <= {"file", "data"}
    assert sum(url.startswith("file") for url in urls) == 1
    assert opened.get_log("browser") == []


@pytest.mark.browser
def test_the_page_fits_the_window(opened: Any) -> None:
    width, client = opened.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert width == client
    outside = opened.execute_script(
        "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg, "
        "caption') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"
    )
    assert outside == []
    size = opened.execute_script("return parseFloat(getComputedStyle(document.body).fontSize)")
    assert size >= 16


@pytest.mark.browser
def test_hovering_over_a_cell_shows_its_details(opened: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    cell = opened.find_element(By.CSS_SELECTOR, "#table-3 td")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", cell)
    assert tip(opened) is None
    ActionChains(opened).move_to_element(cell).perform()
    text = tip(opened) or ""
    for part in ("Cora clean, Heat", "here", "3 seeds", "paper", "78.86 ± 1.78", "difference", "p"):
        assert part in text
    press(opened, "ESCAPE")
    assert tip(opened) is None


@pytest.mark.browser
def test_arrow_keys_move_and_escape_closes(opened: Any) -> None:
    focus(opened, "#table-3 td")
    assert "Cora clean, Heat" in (tip(opened) or "")
    assert opened.execute_script("return document.activeElement.getAttribute('aria-describedby')")
    for key, place in (
        ("ARROW_RIGHT", ["Cora clean", "GRAND/BLEND"]),
        ("ARROW_DOWN", ["Cora SPEIT", "GRAND/BLEND"]),
        ("END", ["Cora SPEIT", "Beltrami"]),
        ("ARROW_RIGHT", ["Cora SPEIT", "Beltrami"]),
        ("ARROW_LEFT", ["Cora SPEIT", "Mean Curvature"]),
        ("ARROW_UP", ["Cora clean", "Mean Curvature"]),
        ("HOME", ["Cora clean", "Heat"]),
        ("ARROW_UP", ["Cora clean", "Heat"]),
    ):
        press(opened, key)
        assert focused(opened) == place
        assert ", ".join(place) in (tip(opened) or "")
    press(opened, "ESCAPE")
    assert tip(opened) is None
    assert focused(opened) == ["Cora clean", "Heat"]


@pytest.mark.browser
def test_a_table_is_one_tab_stop(opened: Any) -> None:
    stops = opened.execute_script(
        "return [...document.querySelectorAll('.paper-table table')]"
        ".map(t => t.querySelectorAll('td[tabindex=\"0\"]').length)"
    )
    assert set(stops) == {1}
    focus(opened, "#table-3 td")
    press(opened, "TAB")
    assert opened.execute_script("return document.activeElement.closest('#table-3')") is None


@pytest.mark.browser
def test_the_first_stop_skips_to_the_content(opened: Any) -> None:
    press(opened, "TAB")
    assert opened.switch_to.active_element.text == "Skip to the content"
    press(opened, "ENTER")
    assert opened.switch_to.active_element.get_attribute("id") == "content"


@pytest.mark.browser
def test_a_deviation_leads_to_its_cell(opened: Any) -> None:
    link = opened.execute_script("return document.querySelector('.misses a').hash")
    focus(opened, ".misses a")
    press(opened, "ENTER")
    # The cell takes the focus once the link was followed.
    opened.execute_async_script("setTimeout(arguments[0], 50)")
    assert f"#{opened.switch_to.active_element.get_attribute('id')}" == link
    assert "in pooled sd" in (tip(opened) or "")


@pytest.mark.browser
def test_what_an_error_says_does_not_run(opened: Any) -> None:
    focus(opened, "#table-3 td.failed")
    assert "<script>" in (tip(opened) or "")
    assert opened.execute_script("return document.querySelectorAll('#tip script').length") == 0


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(opened: Any, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    low = opened.execute_script(CONTRAST)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert low == []


CONTRAST = """
const parse = text => text.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const ground = node => {
  for (; node; node = node.parentElement) {
    const found = parse(getComputedStyle(node).backgroundColor);
    if (found.length === 3 || found[3] > 0) return found;
  }
  return [255, 255, 255];
};
const low = [];
const kinds = "p, li, a, td span, td small, th, summary, b, dd, dt, .label, .tick";
for (const node of document.querySelectorAll(kinds)) {
  const style = getComputedStyle(node);
  const ink = light(parse(node.closest("svg") ? style.fill : style.color));
  const back = light(ground(node));
  const ratio = (Math.max(ink, back) + .05) / (Math.min(ink, back) + .05);
  const name = `${node.tagName} ${node.textContent.trim().slice(0, 30)}`;
  if (ratio < 4.5) low.push(`${name}: ${ratio.toFixed(2)}`);
}
return [...new Set(low)].slice(0, 10);
"""
