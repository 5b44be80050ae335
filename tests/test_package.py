import ast
import importlib.util
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep

import robust_diffusion
import robust_diffusion.data.sources
from robust_diffusion import (
    attacks,
    certificates,
    data,
    evaluation,
    flows,
    models,
    records,
    training,
)
from robust_diffusion.commands.usage import EXPERIMENTS, GROUPS, HEAD, SWEPT, usage
from robust_diffusion.run import ALL_COMMANDS
from robust_diffusion.system.lazy import typed_imports
from tests.drawn import CLASSES, drawn_data
from tests.test_config import GROUPS as FOLDERS
from tests.test_config import options

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = ["README.md", "CONTRIBUTING.md", "experiments/README.md"]
PAGES += [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = {
    ROOT / "docs" / name
    for name in re.findall(r'^    "(\w+/\w+\.md)": _', (ROOT / "docs/hooks.py").read_text(), re.M)
}
"""Pages that are built with the site."""

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def commands(text: str) -> list[str]:
    """Commands on the package's own options; with --config-dir, the options are the reader's."""
    joined = text.replace("\\\n", " ")
    found = re.findall(r"python -m robust_diffusion\.run ([^\n#`]*)", joined)
    return [command for command in found if "--config-dir" not in command]


BLOCKS = [
    pytest.param(block, id=f"{page} {number}")
    for page in ("README.md", "docs/guides/model.md", "docs/guides/poison.md")
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_calls_in_the_pages_fit_the_functions(block: str) -> None:
    tree = ast.parse(block)
    names = {
        alias.name: getattr(importlib.import_module(str(node.module)), alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("robust_diffusion")
        for alias in node.names
    }
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Name) and call.func.id in names:
            keywords = {str(keyword.arg): None for keyword in call.keywords}
            inspect.signature(names[call.func.id]).bind(*call.args, **keywords)


TEXTS = [*((ROOT / page).read_text() for page in PAGES), usage(ALL_COMMANDS).removeprefix(HEAD)]


@pytest.mark.slow
def test_a_built_wheel_holds_code_configuration_and_the_command(tmp_path: Path) -> None:
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed, and a build may not fetch it")
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=250)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src").rglob("*.py")}
    options = {str(p.relative_to(ROOT)) for p in (ROOT / "conf").rglob("*.yaml")}
    assert sources <= names
    assert "robust_diffusion/py.typed" in names
    assert {f"robust_diffusion/{option}" for option in options} <= names
    module, _, function = PROJECT["project"]["scripts"]["robust-diffusion"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    ["README.md", pytest.param("docs/guides/model.md", marks=pytest.mark.real_data)],
)
def test_the_report_on_a_page_is_what_its_code_prints(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "model" in page:  # as if it had been downloaded
        raw = Path(os.environ["ROBUST_DIFFUSION_DATA"], "planetoid", "Cora", "raw")
        shutil.copytree(raw, tmp_path / "data" / "Cora" / "raw")
    monkeypatch.chdir(tmp_path)
    call = r"```python\n([^`]*?evaluate\([^`]*)```\s*```\n(.*?)```"
    ((code, shown),) = re.findall(call, (ROOT / page).read_text(), re.DOTALL)
    torch.set_num_threads(1)
    exec(code, names := {})
    report = names["report"]
    rows = report.to_frame().set_index("attack")["accuracy"]
    for name, accuracy in rows.items():
        (line,) = (line for line in shown.splitlines() if line.split()[0] == name)
        # Another processor rounds otherwise, and training goes on from there.
        assert float(re.findall(r"\d+\.\d\d", line)[0]) == pytest.approx(100 * accuracy, abs=3)


def test_the_lines_of_the_page_on_poisoning_run() -> None:
    page, data = (ROOT / "docs/guides/poison.md").read_text(), drawn_data()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(code.replace("weight_decay", "max_epochs=2, weight_decay"), names := {"data": data})
    assert names["logits"].shape == (data.num_nodes, CLASSES)
    flips = (names["graph"].edge_index.size(1) - data.edge_index.size(1)) // 2
    assert 0 < abs(flips) <= 0.05 * data.edge_index.size(1) / 2


def test_every_shape_that_is_declared_is_checked() -> None:
    (checked,) = re.findall(r"^TENSORS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    source = ROOT / "src" / "robust_diffusion"
    declaring = [p for p in source.rglob("*.py") if "from jaxtyping import" in p.read_text()]
    assert len(declaring) > 60
    folders = [source / of.replace(".", "/") for of in checked.split()]
    assert not [p for p in declaring if not any(map(p.is_relative_to, folders))]


def test_links_and_targets_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (numbers,) = re.findall(r"addprefix table-,([\d ]+)", makefile)
    tables = {f"table-{number}" for number in numbers.split()}
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, re.MULTILINE)) | tables
    assert tables == {path.stem for path in (ROOT / "conf" / "experiment").glob("table-*.yaml")}
    for page in [*map(ROOT.joinpath, PAGES), *(ROOT / ".github" / "workflows").glob("*.yml")]:
        text = page.read_text()
        if page.suffix == ".yml":
            text = re.sub("#.*", "", text)
        named = re.findall(r"(?:^|`)make ((?![a-z0-9-]*<)[a-z][a-z0-9-]*)", text, re.MULTILINE)
        assert set(named) <= targets
        if page.suffix == ".md":
            links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
            found = [(page.parent / link).resolve() for link in links]
            assert [path for path in found if not path.exists() and path not in GENERATED] == []


@pytest.mark.slow
def test_every_command_of_the_pages_composes(compose: Callable[..., Any]) -> None:
    composed = set()
    for command in {command for text in TEXTS for command in commands(text)}:
        given = [word for word in shlex.split(command) if "=" in word and not word.startswith("-")]
        given = [word for word in given if "optuna" not in word and "hydra.sweeper." not in word]
        given = [re.sub(r"^attacks=", "attack=", word) for word in given]
        if "certify" in command.split():
            given = ["certificate=sparse", *given]
        first, last = [], []
        for override in OverridesParser.create().parse_overrides(given):
            values = [override.input_line]
            if override.is_sweep_override():
                key, swept = override.get_key_element(), override.value()
                ends = isinstance(swept, IntervalSweep)  # of a search, which draws in between
                sweep = [swept.start, swept.end] if ends else override.sweep_string_iterator()
                values = [f"{key}={value}" for value in sweep]
            first.append(values[0])
            last.append(values[-1])
        composed |= {tuple(first), tuple(last)}
    for overrides in composed:
        assert compose(*overrides).seed == 0 or any(o.startswith("seed=") for o in overrides)


LIGHT = """
import sys, robust_diffusion
dir(robust_diffusion), robust_diffusion.__version__
heavy = {"torch", "numpy", "pandas", "hydra", "omegaconf", "pytorch_lightning", "torch_geometric"}
sys.exit(bool(heavy & {name.split(".")[0] for name in sys.modules}))
"""
EVALUATING = """
import sys
from robust_diffusion import evaluate
sys.exit(bool({"pytorch_lightning", "torchdiffeq", "hydra"} & {*sys.modules}))
"""
FRONT = """
import sys
from contextlib import suppress
from pathlib import Path
from robust_diffusion.run import main
Path("records.jsonl").touch()
records, out = ["--records", "records.jsonl"], ["--out", "out"]
heavy = {"torch", "torch_geometric", "pytorch_lightning", "scipy.stats", "pooch", "wandb"}
for words in (
    ["flow=none_such"], ["flow=heat", "flow.none_such=1"], ["-m", "flow=none_such"],
    ["data", "list"],
    ["table", "3", *records], ["claims", *records], ["compare", "seeds", *records],
    ["leaderboard", *records], ["report", *records, *out],
    ["dashboard", "--experiment", "table-3", "--dry-run"],
    ["audit", "--help"], ["certify", "--help"], ["evaluate", "--eahc", "3"],
):
    with suppress(SystemExit):
        main(words)
    if found := heavy & {*sys.modules}:
        sys.exit(f"{words}: imports {found}")
"""


SLOW = [pytest.param(code, marks=pytest.mark.slow) for code in (EVALUATING, FRONT)]


@pytest.mark.parametrize("code", [LIGHT, *SLOW])
def test_what_takes_seconds_is_imported_when_it_is_needed(code: str, tmp_path: Path) -> None:
    outcome = subprocess.run(
        [sys.executable, "-W", "default", "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "torch.jit" not in outcome.stderr


@pytest.mark.parametrize(
    "package",
    [
        robust_diffusion,
        attacks,
        certificates,
        data,
        data.sources,
        evaluation,
        flows,
        models,
        records,
        training,
    ],
)
def test_lazy_names_are_those_that_type_checkers_see(package: ModuleType) -> None:
    assert {*package.__all__} - {"__version__"} == typed_imports(package.__name__).keys()
    assert not [name for name in package.__all__ if inspect.ismodule(getattr(package, name))]


def test_the_top_level_is_small() -> None:
    assert len(robust_diffusion.__all__) <= 18


def test_help_fits_a_screen_and_leads_to_every_option(cli: Callable[..., Any]) -> None:
    for words in ([], ["--help"], ["seed=3", "-h"]):
        outcome = cli(*words)
        assert (outcome.status, outcome.out) == (0, usage(ALL_COMMANDS))
    lines = outcome.out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert len(SWEPT) == len(EXPERIMENTS) == 10
    assert {*outcome.out.replace(",", " ").split()} >= {*ALL_COMMANDS, *GROUPS}
    assert GROUPS.keys() == {*FOLDERS, "hydra/launcher", "hydra/sweeper"}
    for group in GROUPS:
        text = cli("--help", group).out
        described = [line.split() for line in text.splitlines()]
        assert {row[0] for row in described if len(row) > 1} >= {*options(group)}, group
    assert "flow.lipschitz" in cli("flow=heat", "--help").out


@pytest.mark.parametrize("override", SWEPT)
def test_each_key_that_the_help_shows_is_swept(cli: Callable[..., Any], override: str) -> None:
    outcome = cli("-m", override, "training.max_epochs=0")  # refused after every value was read
    assert outcome.error.startswith("error: training.max_epochs=0: "), outcome.err


@pytest.mark.parametrize("command", ALL_COMMANDS)
def test_every_command_has_a_help(cli: Callable[..., Any], command: str) -> None:
    outcome = cli(command, "--help")
    assert outcome.status == 0
    assert outcome.out.startswith(f"usage: robust-diffusion {command}")


def test_no_public_name_is_defined_in_two_modules() -> None:
    defined: dict[str, set[Path]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            names += [target.id for target in targets if isinstance(target, ast.Name)]
            for name in names:
                defined.setdefault(name, set()).add(path)
    twice = {name for name, paths in defined.items() if len(paths) > 1}
    assert {name for name in twice if not name.startswith("_")} <= {"log"}


def test_no_function_is_longer_than_80_lines() -> None:
    lines = {
        f"{path.name}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert not {name for name, count in lines.items() if count > 80}


def test_the_bibliography_has_every_source_that_a_docstring_names() -> None:
    package = ROOT / "src" / "robust_diffusion"
    bibliography = (package / "references.bib").read_text(encoding="utf-8")
    kinds = ("flows", "models", "attacks")
    for path in [path for kind in kinds for path in package.glob(f"{kind}/**/*.py")]:
        text = path.read_text(encoding="utf-8")
        for reference in re.findall(r'Reference: (.*?)(?:\n\n|""")', text, re.DOTALL):
            for source in re.findall(r"(?:arXiv|doi|OpenReview):[\w./-]*\w", reference):
                assert f"{{{source},\n" in bibliography, path
