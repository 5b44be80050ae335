import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.commands.cite import OWN, SOURCE, bibliography, reference_of
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError

Cli = Callable[..., Any]

TARGETS = sorted(
    {
        target
        for group in ("flow", "model", "attack")
        for path in (CONFIG_DIR / group).glob("*.yaml")
        for target in re.findall(r"_target_: (robust_diffusion[.\w]+)", path.read_text())
    }
)


def test_every_flow_model_and_attack_says_whose_it_is() -> None:
    for target in TARGETS:
        found = SOURCE.findall(reference := reference_of(target))
        assert found or OWN in reference, target
        assert {*found} <= bibliography().keys(), target


def test_cite_reads_a_class_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_flows.py").write_text(
        '''raise RuntimeError("imported")
class Mine:
    """A flow.

    Reference: eq. (1), arXiv:1234.56789.
    """
class Variant(Mine): ...
'''
    )
    (tmp_path / "my_names.py").write_text("from my_flows import Variant as Renamed")
    monkeypatch.syspath_prepend(tmp_path)
    for target in ("my_flows.Mine", "my_flows.Variant", "my_names.Renamed"):
        assert reference_of(target) == "eq. (1), arXiv:1234.56789."
    for target in ("my_flows.Absent", "none_such.Mine"):
        with pytest.raises(ConfigError, match=f"{target}: cannot be imported"):
            reference_of(target)


def test_the_entries_are_whole() -> None:
    for key, entry in bibliography().items():
        assert entry.count("{") == entry.count("}"), key
        assert {"title", "author", "year"} <= {*re.findall(r"(\w+) = ", entry)}, key
        kind, _, own = key.partition(":")
        assert not own or {"arXiv": "eprint", "doi": "doi", "OpenReview": "url"}[kind] in entry
        assert entry.count(own or "robust") > 1, key


def test_what_a_cell_uses_is_cited(cli: Cli) -> None:
    outcome = cli("cite", "flow=beltrami", "attack=auto", "threat=white_box")
    assert outcome.status == 0
    found = re.findall(r"^@\w+{(.*),", outcome.out, re.MULTILINE)
    assert found[0] == "robust_diffusion"
    assert {"arXiv:2209.07754", "arXiv:2003.01690"} <= {*found}
    assert not {"arXiv:2106.06663", "arXiv:1609.02907"} & {*found}  # TDGIA, a surrogate
    assert "% MLP: of this project" in cli("cite", "model=mlp").out
    assert cli("cite", "flow=none_such").status == 1
