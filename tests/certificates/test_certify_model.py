import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn
from torch_geometric.data import Data

from robust_diffusion import certify
from robust_diffusion.attacks import FGSM, PRBCD, RandomInjection
from robust_diffusion.attacks.modification.base import flipped
from robust_diffusion.certificates import BiSmoothing, SparseSmoothing
from robust_diffusion.certificates.report import (
    NOTHING_FELL,
    Attacked,
    CertificateReport,
    certificate_tables,
    read_certificates,
)
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.models import MLP
from tests.attacks.contract import graph, trained

SPARSE = SparseSmoothing(
    p_plus=0.002, p_minus=0.8, samples=400, selection_samples=50, budgets=(1, 2), alpha=0.01
)
INJECTION = BiSmoothing(
    p_e=0.4, p_n=0.7, samples=400, selection_samples=50, budgets=(1, 2), edges=(3, 1)
)
SCHEMES = [SPARSE, INJECTION]


def call(scheme: Any, of: nn.Module | None = None, **options: Any) -> CertificateReport:
    data = Data(x=graph().x, edge_index=graph().edge_index, y=graph().y)
    given = {"targets": graph().index_test, "progress": False} | options
    return certify(of or trained(), data, certificate=scheme, **given)


@pytest.fixture(scope="module")
def reports() -> dict[str, CertificateReport]:
    return {scheme.name: call(scheme) for scheme in SCHEMES}


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_more_budget_is_certified_at_fewer_nodes(
    scheme: Any, reports: dict[str, CertificateReport]
) -> None:
    report = reports[scheme.name]
    curve, grid = report.curve(), report.to_frame()
    assert curve["certified"].is_monotonic_decreasing
    assert report.clean_accuracy >= curve["certified"][0] > curve["certified"].iloc[-1]
    assert curve["certified"].iloc[1] > 0.1
    assert report.abstained == pytest.approx(1 - grid["certified"].max())
    assert (grid["certified_accuracy"] <= grid["certified"]).all()
    right = report.bounds.predicted == graph().y[graph().index_test].numpy()
    assert grid["certified_accuracy"].max() == (right & ~report.bounds.abstained).mean()
    budget = grid[list(scheme.mixes(0)[0])].iloc[-1].astype(int).to_dict()
    assert report.certified(**budget).mean() == grid["certified"].iloc[-1]
    with pytest.raises(ConfigError, match=r"^budget: "):
        report.certified(flips=1)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_a_certificate_is_drawn_and_shown_in_a_notebook(
    scheme: Any, reports: dict[str, CertificateReport]
) -> None:
    report = replace(reports[scheme.name], model="<b>", attacked=[Attacked(1, 0.6, "pgd", 0)])
    report = replace(report, attacked=[replace(report.attacked[0], total=t) for t in (1, 2)])
    axes, curve = report.plot(Figure().subplots(), mlp=0.6), report.curve()
    drawn = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert list(drawn["certified, each target"]) == pytest.approx(list(100 * curve["certified"]))
    assert list(drawn["attacked"]) == pytest.approx(list(100 * curve["attacked"]))
    assert drawn["MLP 60.0 %"][0] == pytest.approx(60)
    assert axes.get_xlabel() == scheme.unit
    page, text = report._repr_html_(), str(report)
    assert "<b>" not in page
    for share in curve["certified"]:
        assert f"{100 * share:.2f}" in page
        assert f"{100 * share:.2f}" in text


ATTACKS = [(SPARSE, PRBCD(num_steps=3, block_size=500)), (INJECTION, FGSM(num_steps=3))]


@pytest.mark.parametrize(("scheme", "attack"), ATTACKS, ids=["sparse", "bi_smoothing"])
def test_local_attacks_spend_each_budget_on_one_target(scheme: Any, attack: Any) -> None:
    scheme = replace(scheme, samples=30, budgets=(2,))
    report = call(scheme, attacks=attack, attack_draws=2, local=2)
    assert len(report.nodes) == len(report.labels) == 2
    assert set(report.nodes.tolist()) < set(graph().index_test.tolist())
    assert [of.num_targets for of in report.attacks] == [1, 1]
    (attacked,) = report.attacked
    assert report.certified_accuracy(2) <= attacked.accuracy <= report.clean_accuracy
    assert json.loads(report.to_json())["local"]
    for node, of in zip(report.nodes, report.attacks, strict=True):
        new = of[attack.name].graph.edge_index
        flips = flipped(graph().edge_index, new, int(new.max()) + 1)
        assert (flips == node).any(0).all()
        assert 0 < flips.size(1) <= 2


def test_a_model_without_edges_has_the_largest_radius_and_its_attacks_check_nothing() -> None:
    torch.manual_seed(0)
    scheme = replace(INJECTION, samples=100, budgets=(1,), max_nodes=0)
    report = call(scheme, MLP(16, 8, out_channels=7), attacks=FGSM(num_steps=3))
    assert report.abstained == 0
    assert report.plain_accuracy == report.clean_accuracy == report.certified_accuracy(1)
    assert scheme.largest(7) == report.largest == 1
    assert report.radius == pytest.approx(report.largest * report.clean_accuracy)
    assert str(report).endswith(NOTHING_FELL)


def test_the_end_of_the_search_is_no_limit_of_every_model() -> None:
    report = call(replace(INJECTION, p_n=0.999, samples=100), MLP(16, 8, out_channels=7))
    assert report.certified_accuracy(report.largest + 1) == report.clean_accuracy > 0
    assert "of any model at most" not in str(report)


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "attack"), ATTACKS, ids=["sparse", "bi_smoothing"])
def test_attacked_accuracy_is_above_certified_one(scheme: Any, attack: Any, tmp_path: Path) -> None:
    scheme = replace(scheme, samples=100)
    report = call(scheme, attacks=attack, attack_draws=2, store=tmp_path)
    curve = report.curve()
    assert (curve["attacked"] >= curve["certified"]).all()
    assert curve["attacked"].is_monotonic_decreasing
    assert curve["broken"].sum() == 0
    assert [of.total for of in report.attacked] == [1, 2]
    for total, of in zip((1, 2), report.attacks, strict=True):
        spent = of[attack.name].spent
        assert spent.changed_nodes == 0
        used = spent.added_edges + spent.removed_edges + spent.injected_nodes
        assert used == total
    record = json.loads((report.save(tmp_path / "report") / "certificate.json").read_text())
    assert record["curve"][2]["attacked"] == curve["attacked"][2]
    assert record["options"]["samples"] == 100
    assert f"{100 * curve['certified'][1]:.2f}" in str(report)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"scheme": "dense"}, "certificate=dense"),
        ({"scheme": SPARSE, "attacks": RandomInjection()}, "attacks: random"),
        ({"scheme": SPARSE, "seed": -1}, "seed=-1"),
        ({"scheme": SPARSE, "attack_draws": 0}, "attack_draws=0"),
        ({"scheme": SPARSE, "local": 1000}, "local=1000"),
        (
            {"scheme": replace(SPARSE, budgets=(10**6,)), "attacks": PRBCD()},
            "certificate.budgets=1000000",
        ),
    ],
)
def test_what_cannot_be_is_told(given: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}"):
        call(**given)


def record(**changes: Any) -> dict[str, Any]:
    curve = [
        {"budget": 0, "certified": 0.8, "attacked": 0.9, "broken": 0},
        {"budget": 2, "certified": 0.25, "attacked": 0.5, "broken": 0},
    ]
    own = {"certificate": "sparse", "unit": "flipped edges", "curve": curve}
    return own | {"plain_accuracy": 0.95, "clean_accuracy": 0.9, "abstained": 0.1} | changes


def saved(folder: Path, report: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    (folder / "certificate.json").write_text(json.dumps(report))


class MeanOfNeighbours(nn.Module):
    """A model that divides by the degree, which noise makes 0."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        src, dst = edge_index
        degrees = torch.bincount(dst, minlength=len(x)).to(x)
        return torch.zeros_like(x).index_add(0, dst, x[src])[:, :7] / degrees[:, None]


@pytest.mark.parametrize("scheme", ["sparse", "bi_smoothing"])
def test_logits_that_are_no_numbers_are_no_votes_for_the_first_class(scheme: str) -> None:
    joined = citation_like_graph(num_nodes=120, num_edges=240, num_features=8)
    with pytest.raises(ConfigError, match=f"^certificate={scheme}: .* NaN of MeanOfNeighbours"):
        certify(MeanOfNeighbours(), joined, certificate=scheme, progress=False)


def test_folders_of_one_name_are_told_apart_by_their_parents(tmp_path: Path) -> None:
    names = ["cora/gcn", "cora/mlp", "citeseer/gcn"]
    for name in names:
        saved(tmp_path / name, record())
    folders = [tmp_path / "cora", tmp_path / "citeseer", tmp_path / "cora" / "gcn"]
    assert list(read_certificates(folders)) == ["cora/gcn", "mlp", "citeseer/gcn"]


def test_reports_are_rows_by_scheme(tmp_path: Path) -> None:
    broken = [{"budget": 1, "certified": 0.8, "attacked": 0.7, "broken": 3}]
    of = {
        "gcn": record(),
        "mlp": record(curve=[{"budget": 0, "certified": 1.0}]),
        "other": record(certificate="bi_smoothing", unit="injected nodes", curve=broken),
    }
    for name, report in of.items():
        saved(tmp_path / name, report)
    assert read_certificates([tmp_path]) == of
    assert read_certificates([tmp_path / "gcn"]) == {"gcn": of["gcn"]}
    tables = certificate_tables(read_certificates([tmp_path]))
    sparse, nodes = (tables[title] for title in sorted(tables, reverse=True))
    rows = sparse.set_index("model")
    shown = ["90.00", "80.00 / 90.00", "25.00 / 50.00"]
    assert rows.loc["gcn", ["smoothed", "0", "2"]].tolist() == shown
    assert rows.loc["mlp", ["0", "2", "attacks"]].tolist() == ["100.00", "", "none"]
    assert nodes["1"].tolist() == ["80.00 / 70.00!"]


WRONG: list[tuple[str, Any]] = [
    *(("plain_accuracy", "high"), ("clean_accuracy", 7), ("abstained", -0.1), ("curve", [])),
    *(("curve", [{"budget": 0, "certified": 80}]), ("clean_accuracy", float("nan"))),
]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (None, ""),
        ("{", ""),
        ("[1]", ""),
        *((json.dumps(record(**{key: value})), key) for key, value in WRONG),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str | None, key: str) -> None:
    if text:
        (tmp_path / "certificate.json").write_text(text)
    with pytest.raises(DataError, match=rf"^{tmp_path}[^\n]*{key}[^\n]*$"):
        read_certificates([tmp_path])
