import ast
import importlib.util
import inspect
import re
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
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import get_class
from torch_geometric.nn.models import GCN

import robust_diffusion
from robust_diffusion import config
from robust_diffusion.commands.usage import HEAD, usage
from tests.drawn import CLASSES, FEATURES, drawn_data
from tests.graphs import NODES, random_graph

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = ["README.md", "CONTRIBUTING.md", "experiments/README.md", "experiments/deviations.md"]
PAGES += [f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def existing_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text()
    found = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, re.MULTILINE))
    (numbers,) = re.findall(r"addprefix table-,([\d ]+)", makefile)
    return found | {f"table-{number}" for number in numbers.split()}


def make_targets(text: str) -> set[str]:
    return set(re.findall(r"\bmake ((?![a-z0-9-]*<)[a-z][a-z0-9-]*)", text))


def commands(text: str) -> list[str]:
    """Commands on the package's own options; with --config-dir, the options are the reader's."""
    joined = text.replace("\\\n", " ")
    found = re.findall(r"python -m robust_diffusion\.run ([^\n#`]*)", joined)
    return [command for command in found if "--config-dir" not in command]


def load_copy(folder: Path) -> ModuleType:
    """The module `config`, as if it were installed in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = shutil.copy(config.__file__, folder / "config.py")
    spec = importlib.util.spec_from_file_location("copied_config", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_checkout_reads_its_own_configuration() -> None:
    assert ROOT / "conf" == config.CONFIG_DIR
    assert (config.CONFIG_DIR / "config.yaml").is_file()


def test_an_installed_package_reads_the_configuration_it_carries(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages" / "robust_diffusion"
    (folder / "conf").mkdir(parents=True)
    assert folder / "conf" == load_copy(folder).CONFIG_DIR


def test_a_source_tree_reads_the_configuration_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "src" / "robust_diffusion"
    assert tmp_path / "conf" == load_copy(folder).CONFIG_DIR


def test_the_wheel_carries_the_configuration() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"conf": "robust_diffusion/conf"}
    assert wheel["packages"] == ["src/robust_diffusion", "src/hydra_plugins"]


def test_the_command_of_the_package_exists() -> None:
    module, _, function = PROJECT["project"]["scripts"]["robust-diffusion"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.slow
def test_a_built_wheel_holds_code_and_configuration(tmp_path: Path) -> None:
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


BLOCKS = [
    pytest.param(block, id=f"{page} {number}")
    for page in ("README.md", "docs/python.md")
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


def test_every_argument_of_evaluate_is_documented() -> None:
    table = (ROOT / "docs" / "python.md").read_text().partition("## `evaluate`")[2]
    documented = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    arguments = inspect.signature(robust_diffusion.evaluate).parameters
    assert documented == {*arguments} - {"progress"}


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 110


@pytest.mark.parametrize("name", PAGES)
def test_every_relative_link_leads_to_a_file(name: str) -> None:
    page = ROOT / name
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_flow_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(from robust_diffusion.flows.*?)```", README, re.DOTALL)
    (option,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "my_flow.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_flow", raising=False)  # of a tutorial, in this process
    target = yaml.safe_load(option)["_target_"]
    flow = get_class(target)(channels=8).double()
    graph, z = random_graph(), torch.randn(NODES, 8, dtype=torch.float64)
    t, constant = torch.tensor(0.0), torch.ones_like(z)
    # Rows of the attention sum to 1, so a constant signal does not move.
    torch.testing.assert_close(flow(t, constant, graph), torch.zeros_like(z))
    assert flow(t, z, graph).abs().max() > 0


def test_every_page_of_the_site_is_reached_and_checked() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("nav:\n  - Start")[2]
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page != "index.md" and f": {page}\n" not in nav] == []
    (built,) = re.findall(r"mkdocs build .*", (ROOT / "Makefile").read_text())
    assert "--strict" in built
    assert "--quiet" not in built  # which hides from --strict what would fail


@pytest.mark.slow
def test_the_call_of_the_readme_runs() -> None:
    (code,) = re.findall(r"```python\n(from robust_diffusion import.*?)```", README, re.DOTALL)
    data = drawn_data()
    names: dict[str, Any] = {"model": GCN(FEATURES, 8, 2, CLASSES), "data": data}
    exec(code, names)
    assert names["report"].robust_accuracy <= names["report"].clean_accuracy
    assert names["attacked"].num_nodes == data.num_nodes + 50


@pytest.mark.parametrize("name", PAGES)
def test_every_make_target_that_is_named_exists(name: str) -> None:
    assert make_targets((ROOT / name).read_text()) <= existing_targets()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_steps_that_exist(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    for job in jobs.values():
        assert {"runs-on", "timeout-minutes", "steps"} <= job.keys()
        assert all(len({"uses", "run"} & step.keys()) == 1 for step in job["steps"])
    scripts = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    called = make_targets("\n".join(scripts))
    assert called
    assert called <= existing_targets()


def test_the_workflow_tests_the_versions_of_python_that_the_package_names() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    named = {c.split(" :: ")[-1] for c in PROJECT["project"]["classifiers"] if "Python ::" in c}
    assert set(jobs["test"]["strategy"]["matrix"]["python"]) == named
    assert min(named) == PROJECT["project"]["requires-python"].removeprefix(">=")


def test_the_lowest_versions_are_those_that_make_does_not_install_anew() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    scripts = "\n".join(step.get("run", "") for step in jobs["lowest-versions"]["steps"])
    makefile = (ROOT / "Makefile").read_text()
    assert "STAMP := $(VENV)/.installed" in makefile
    assert scripts.index("--resolution lowest-direct") < scripts.index("touch .venv/.installed")
    (extras,) = re.findall(r"--editable '\.\[(dev.*)\]'", makefile)
    assert f"'.[{extras}]'" in scripts


def test_the_container_gets_what_the_package_is_built_of() -> None:
    kept = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert {"pyproject.toml", "README.md", "LICENSE", "src", "conf", "constraints.txt"} == kept
    assert all((ROOT / name).exists() for name in kept)
    text = (ROOT / "Dockerfile").read_text()
    (extras,) = re.findall(r"install --constraint constraints.txt '\.\[(.*)\]'", text)
    assert set(extras.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()
    assert text.index("USER researcher") < text.index("ENTRYPOINT")


def test_every_table_with_a_grid_has_a_make_target() -> None:
    (numbers,) = re.findall(r"addprefix table-,([\d ]+)", (ROOT / "Makefile").read_text())
    experiments = {path.stem for path in (ROOT / "conf" / "experiment").glob("table-*.yaml")}
    assert {f"table-{number}" for number in numbers.split()} == experiments


TEXTS = [*((ROOT / page).read_text() for page in PAGES), usage().removeprefix(HEAD)]


@pytest.mark.parametrize("command", [c for text in TEXTS for c in commands(text)])
def test_every_command_of_the_pages_composes(compose: Callable[..., Any], command: str) -> None:
    given = [word for word in command.split() if "=" in word and not word.startswith("-")]
    given = [re.sub(r"^attacks=", "attack=", word) for word in given]
    if "certify" in command.split():
        given = ["certificate=sparse", *given]
    first, last = [], []
    for override in OverridesParser.create().parse_overrides(given):
        if override.is_sweep_override():
            values = list(override.sweep_string_iterator())
            key = override.get_key_element()
            first.append(f"{key}={values[0]}")
            last.append(f"{key}={values[-1]}")
        else:
            first.append(override.input_line)
            last.append(override.input_line)
    for overrides in (first, last):
        assert compose(*overrides).seed == 0 or any(o.startswith("seed=") for o in overrides)


def test_a_package_that_could_not_be_looked_up_fails_the_audit() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    command = subprocess.run(
        ["make", "--dry-run", "audit"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "--strict" in command
