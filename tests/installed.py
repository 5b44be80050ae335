"""Install the wheel into an empty environment, and run there what the pages name.

python3.12 tests/installed.py [--constraint constraints.txt] [--lowest]

Nothing of the checkout is on the path of what runs. Needs a package registry; the steps on Cora
need ROBUST_DIFFUSION_DATA. Keeps nothing.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]

RECORDS = "--records experiments/results/records.jsonl.gz"

STEPS = {
    "--version": "robust_diffusion",
    "-m flow=heat,mean_curvature,beltrami training.max_epochs=40"
    " threat.fit.max_epochs=40": "| beltrami",
    "table 3": "experiment=table-3 runs it. Published: ",
    f"table 3 {RECORDS}": "| Cora ",
    f"claims {RECORDS}": "holds",
    f"report {RECORDS} --out report.html": "report.html",
    "leaderboard": "| rank ",
    "certify --show experiments/certificates": "gcn",
    "data list": "synthetic",
    "experiment=table-3 scale=smoke seed=0 flow=heat dataset=cora": "robust-diffusion[wandb]",
    "-m --config-dir my flow=my_flow,beltrami experiment=demo seed=0 scale=smoke": "my_flow",
    "evaluate checkpoint={victim} flow=beltrami attack=tdgia --save saved": "tdgia",
    "audit saved": "within its budget",
}
"""Words after `robust-diffusion`, and what it prints."""

ON_CORA = {
    "evaluate model=gnn_guard dataset=cora"
    " checkpoint=experiments/zoo/model-gnn_guard-cora-paper.safetensors --unit-test": "robust_gcn",
    "audit experiments/zoo dataset=cora": "within its budget",
}

REFUSED = {"figure flows scale=smoke": "pip install 'robust-diffusion[report]'"}
"""What needs an extra."""

PAGES = "\n".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))

NAMES = re.findall(r"^::: (robust_diffusion(?:\.[a-z]+)?\.\w+)$", PAGES, re.MULTILINE)

DOCTESTS = f"""
import doctest, importlib, inspect
for name in {sorted(NAMES)}:
    package, _, attribute = name.rpartition(".")
    of = inspect.unwrap(getattr(importlib.import_module(package), attribute))
    place = importlib.import_module(of.__module__).__file__
    test = doctest.DocTestParser().get_doctest(of.__doc__, {{}}, name, place, None)
    assert doctest.DocTestRunner().run(test).failed == 0, name
"""

README_CALL = """
from torch_geometric.nn.models import GCN
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.data import GraphDataModule
data = GraphDataModule.from_data(citation_like_graph(num_nodes=600, num_edges=1200)).graph
model = GCN(data.num_features, 8, 2, 7)
"""


class Installed:
    """An environment with the wheel, and a folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.env, self.cwd = folder / "env", folder / "elsewhere"
        self.cwd.mkdir()
        self.failed, self.passed = 0, 0
        self.python = self.env / "bin" / "python"

    def pip(self, *arguments: object) -> None:
        run([self.python, "-m", "pip", "install", "--quiet", *arguments])

    def step(
        self, name: str, command: Sequence[object], expected: str = "", status: int = 0
    ) -> None:
        """Run a command, and tell whether it ended and printed as expected."""
        start = time.monotonic()
        ended = run(command, cwd=self.cwd, check=False)
        good = ended.returncode == status and expected in ended.stdout
        self.passed, self.failed = self.passed + good, self.failed + (not good)
        told = f"{'ok' if good else 'FAILED'} {time.monotonic() - start:4.0f} s  {name}"
        print(told if good else f"{told}\n{ended.stdout[-3000:]}", flush=True)

    def code(self, name: str, text: str) -> None:
        self.step(name, [self.python, "-W", "ignore", "-c", text])

    def steps(self) -> None:
        """All that the pages name and the core can do."""
        command = [self.python, "-m", "robust_diffusion.run"]
        (self.cwd / "my/flow").mkdir(parents=True)
        readme, page = ((ROOT / of).read_text() for of in ("README.md", "docs/extend/flow.md"))
        (call,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
        for name, text in re.findall(r'```\w+ title="(.*?)"\n(.*?)```', page, re.DOTALL):
            (self.cwd / name).write_text(text)
        for words, expected in (STEPS | (ON_CORA if on_cora() else {})).items():
            if "{victim}" in words:
                words = words.format(victim=self.victim())
            self.step(words, [*command, *words.split()], expected)
        for words, expected in REFUSED.items():
            self.step(f"{words}: refused", [*command, *words.split()], expected, status=1)
        self.code("zoo", "from robust_diffusion import load_model; load_model('beltrami')")
        self.code("examples of the docstrings", DOCTESTS)
        self.code("call of the README", README_CALL + call)
        for notebook in ("published_records",):
            self.code(notebook, cells(notebook))

    def victim(self) -> Path:
        """Weights that the sweep has trained."""
        paths = (self.cwd / "outputs/records").glob("*.json")
        records = (json.loads(path.read_text()) for path in paths)
        found = next(r for r in records if r.get("flow") == "beltrami")
        return Path("outputs/store") / found["files"]["victim"]


def run(
    command: Sequence[object], *, cwd: Path | None = None, check: bool = True
) -> "subprocess.CompletedProcess[str]":
    """Run a command without the checkout's environment, both streams as one."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    if data := env.get("ROBUST_DIFFUSION_DATA"):
        env["ROBUST_DIFFUSION_DATA"] = str(Path(data).resolve())
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    found = subprocess.run([*map(str, command)], cwd=cwd, env=env, check=False, **streams)
    if check and found.returncode:
        sys.exit(f"{command}: {found.stdout}")
    return found


def on_cora() -> bool:
    return (Path(os.environ.get("ROBUST_DIFFUSION_DATA", "data")) / "grb-cora").is_dir()


def cells(notebook: str) -> str:
    found = json.loads((ROOT / "docs/notebooks" / f"{notebook}.ipynb").read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in found if cell["cell_type"] == "code")


def main() -> None:
    """Exit with 1 if a step failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--constraint", help="file of versions (default: the newest)")
    parser.add_argument("--torch", default="torch", help="such as torch==2.13.0")
    parser.add_argument("--lowest", action="store_true", help="the lowest versions, by uv")
    chosen = parser.parse_args()
    limits = ["--constraint", Path(chosen.constraint).resolve()] if chosen.constraint else []
    with TemporaryDirectory(prefix="robust-diffusion-") as folder:
        run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT])
        (wheel,) = Path(folder).glob("*.whl")
        run([sys.executable, "-m", "venv", f"{folder}/env"])
        own = Installed(Path(folder))
        if chosen.lowest:
            own.pip("uv")
            lowest = Path(folder) / "lowest.txt"
            compiled = [own.python, "-m", "uv", "pip", "compile", ROOT / "pyproject.toml"]
            run([*compiled, "--resolution=lowest-direct", "--extra=report", "-o", lowest])
            limits = ["--constraint", lowest]
        own.pip(*limits, chosen.torch)
        own.pip(*limits, wheel)
        own.steps()
        own.pip(*limits, f"{wheel}[report]")
        for words in REFUSED:
            own.step(words, [own.python, "-m", "robust_diffusion.run", *words.split()])
        versions = (
            "import sys, torch; print('Python', sys.version.split()[0], 'torch', torch.__version__)"
        )
        print(run([own.python, "-c", versions]).stdout.strip())
        print(f"{own.passed} passed, {own.failed} failed")
    sys.exit(own.failed > 0)


if __name__ == "__main__":
    main()
