import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from robust_diffusion.paper.claims import load_claims
from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.paper.page import render_page
from robust_diffusion.paper.paper_table import build_tables
from robust_diffusion.results.cells import RecordSet
from tests.paper.page.study import HOSTILE, study
from tests.paper.records import finished, seeds, timed

VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """The tags of a page; balanced, or it fails."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def values(self, attribute: str) -> list[str]:
        return [found[attribute] or "" for _, found in self.tags if attribute in found]


def parts(page: Page) -> list[str]:
    """Ids of the parts of a page, by their headings, in order."""
    ids = [found.get("id") or "" for tag, found in page.tags if tag == "h2"]
    return [name.removesuffix("-heading") for name in ids]


@pytest.fixture(scope="module")
def parsed(page: str) -> Page:
    return Page(page)


def test_the_page_loads_nothing(page: str, parsed: Page) -> None:
    assert {value.partition(":")[0] for value in parsed.values("src")} == {"data"}
    assert [found["href"] for tag, found in parsed.tags if tag == "link"] == ["data:,"]
    links = [found["href"] or "" for tag, found in parsed.tags if tag == "a"]
    assert all(link.startswith("#") for link in links)
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in page


def test_ids_are_unique_and_every_link_leads_somewhere(parsed: Page) -> None:
    ids = parsed.values("id")
    assert len(set(ids)) == len(ids)
    links = {link[1:] for link in parsed.values("href") if link.startswith("#")}
    named = {i for value in parsed.values("aria-labelledby") for i in value.split()}
    assert links <= set(ids)
    assert named <= set(ids)


def test_every_table_of_the_paper_is_there(parsed: Page) -> None:
    ids = set(parsed.values("id"))
    assert {f"table-{number}" for number in table_numbers()} <= ids
    for number in table_numbers():
        assert load_layout(number).name in parsed.text
    assert "Not run:" not in parsed.text
    figures = [found for tag, found in parsed.tags if tag == "figure" and "data-label" in found]
    assert len(figures) == len(table_numbers())


def test_charts_say_what_they_show(page: str) -> None:
    charts = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    # Flows of 6 datasets and the p-Laplacian, 6 budgets, Heat+, 6 times, solvers, t_end.
    assert len(charts) == 7 + 6 + 1 + 6 + 1 + 1
    for chart in charts:
        assert re.search(r"<title[^>]*>.+</title><desc[^>]*>.+</desc>", chart)
        assert 'role="img"' in chart
        assert "nan" not in chart.lower()
    for unit in ("accuracy [%]", "injected nodes", "training time [s]", "evaluations of the flow"):
        assert f">{unit}" in page


def test_what_records_and_figures_say_stays_text(page: str, parsed: Page) -> None:
    assert HOSTILE.split("\u2028")[0].strip() in parsed.text
    assert [tag for tag, _ in parsed.tags].count("script") == 1
    assert "example.org" not in " ".join(parsed.values("src"))
    assert "older<b>" in parsed.text
    assert "A <b> & t-SNE." in parsed.text
    assert "alert(1)" not in page


def test_figures_are_images_with_their_captions(parsed: Page) -> None:
    images = [found for tag, found in parsed.tags if tag == "img"]
    titles = [image["alt"] for image in images]
    assert titles == ["broken", "Figure (tsne_flows): flows. A <b> & t-SNE."]
    assert "Heat, attention: mean within classes 0.2500, between 0.1250" in parsed.text
    assert "Smoke run: says nothing about the paper." in parsed.text


def test_deviations_link_to_cells_largest_first(parsed: Page) -> None:
    cells = {found["id"]: found for tag, found in parsed.tags if tag == "td" and "id" in found}
    links = [link[1:] for link in parsed.values("href") if "-cell-" in link]
    away = [abs(float(cells[link]["data-deviations"] or "nan")) for link in links]
    assert away == sorted(away, reverse=True)
    assert min(away) > 2
    for name, found in cells.items():
        far = abs(float(found.get("data-deviations") or 0)) > 2
        assert ("miss" in (found["class"] or "").split()) == far == (name in links)


@pytest.mark.slow
def test_the_same_records_are_the_same_page(figures: Path) -> None:
    records = [*seeds([0.6, 0.7]), *seeds([0.5, 0.4], flow="heat", experiment="t-end")]
    tables = build_tables(RecordSet.of(records, fidelity="paper"))
    page = render_page(records, figures=figures)
    assert render_page(records, figures=figures, tables=tables) == page


def test_times_appear_in_no_accuracy_chart() -> None:
    steps = {"solver": {"num_steps": 1}}
    records = [timed(0.0042, settings=steps), timed(0.002, model="gat")]
    # A step can be timed in any experiment; there it is no result.
    others = enumerate(("t-end", "table-3", "table-5"))
    records += [timed(experiment=name, dataset="cora", seed=seed) for seed, name in others]
    for record in records:
        record["config"]["model"].get("flow", {})["t_end"] = 1.0
    text = render_page(records)
    timed_page = Page(text)
    assert "4.20 (3.78–4.62)" in timed_page.text
    assert "2 of 28" in timed_page.text
    assert "charts" not in timed_page.values("id")
    assert "5 finished" in timed_page.text
    scrolled = [v for v in timed_page.values("aria-label") if v.startswith("Table 7 ")]
    assert len(scrolled) == 2
    assert '<th scope="col" class="name">GNNs</th>' in text


def test_without_records_the_page_says_so() -> None:
    empty = Page(render_page([]))
    assert "No cell has finished" in empty.text
    assert parts(empty) == ["tables", "records"]
    # Budgets are configured.
    assert [found["id"] for tag, found in empty.tags if tag == "figure"] == ["table-15"]
    assert "Not run: Table 1 · networks under attack; Table 2" in empty.text


def test_a_smoke_page_says_that_it_is_one() -> None:
    records = study(seeds=1, scale="smoke")
    smoke = Page(render_page(records, scale="smoke"))
    assert "Smoke run." in smoke.text
    assert parts(smoke) == ["charts", "tables", "records"]
    charts = smoke.text.partition("Robustness of the flows")[2].partition("State of the tables")[0]
    assert charts
    assert "published in the paper" not in charts
    full = Page(render_page([finished(scale="smoke")]))
    assert "0 finished" in full.text
    assert "1 cell of --scale smoke --fidelity paper" in full.text


def test_another_variant_is_another_page() -> None:
    named = seeds([0.6, 0.7], processor="Abacus, 13 beads", fidelity="released")
    other = {"fidelity": "released"}
    records = [*named, finished(flow="heat", **other), timed(machine="a watch") | other]
    released = Page(render_page(records, fidelity="released"))
    assert "table-3-released" in released.values("id")
    counted = "Processor Abacus, 13 beads (2 cells); not recorded (1 cell); a watch (1 cell)"
    assert counted in released.text
    assert "0 finished" in Page(render_page(records)).text


def test_the_page_opens_with_conclusions_and_its_contents_are_in_order(parsed: Page) -> None:
    order = [
        "conclusions",
        "charts",
        "claims",
        "misses",
        "worst-cases",
        "figures",
        "all-claims",
        "tables",
        "records",
    ]
    assert parts(parsed) == order
    contents = [link[1:] for link in parsed.values("href") if link[1:] in order]
    assert contents[: len(order)] == order


def test_eight_claims_are_on_top_and_all_below(page: str, parsed: Page) -> None:
    front = page[page.index('id="claims"') : page.index('id="misses"')]
    rows = front.count("<tr>") - 1
    assert rows == len(load_claims().front) <= 8
    names = [f"claim-{name}" for name in load_claims().claims]
    assert [name for name in parsed.values("id") if name in names and f'"{name}"' in front] == []
    assert page.index('id="all-claims"') > page.index('id="claims"')
    assert set(names) <= set(parsed.values("id"))
    for column in ("paper", "published", "worst case"):
        assert front.count(f'data-column="{column}"') == rows
    # An opposite sign is told by its verdict, in words.
    assert "\u2717" not in front


def test_switches_follow_the_setting_they_depart_from() -> None:
    settings = {"paper": {}, "steps": {"fidelity.num_steps": "1"}}
    records = []
    for name, own in settings.items():
        for seed in (0, 1):
            options = {"overrides": {"fidelity": "paper", **own}, "cell": f"{name} {seed}"}
            accuracy = 0.7 + 0.01 * seed + 0.05 * len(own)
            records.append(finished(accuracy, experiment="readings", seed=seed, **options))
    page = render_page(records)
    section = page[page.index('id="switches"') : page.index('id="tables"')]
    assert '<tr class="base"><th scope="row">(baseline)</th><td>2</td>' in section
    assert '<th scope="row">num_steps=1</th><td>2</td><td>75.50 ± 0.71' in section
    assert "<small>+5.00" in section
