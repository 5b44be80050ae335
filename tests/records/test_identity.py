import copy
from typing import Any

import pytest
import yaml
from hydra.utils import get_object

from robust_diffusion.config import PUBLISHED_RECORDS
from robust_diffusion.records import Record, read_records
from robust_diffusion.records.content import targets_of
from robust_diffusion.records.identity import run_id, settings_of
from tests.paper.records import finished

CONFIG: dict[str, Any] = {
    "seed": 0,
    "data": {"name": "cora", "source": {"folder": {"root": "/data", "path": "grb-cora"}}},
    "model": {"num_layers": 3, "flow": {"t_end": 1.0}},
    "training": {"max_epochs": 5, "progress_bar": True, "trainer": {"devices": 1}},
    "attacks": {"speit": {"steps": 3}},
    "budget": {"max_injected_nodes": 3},
    "threat": {"surrogates": {"appnp": {"num_layers": 3}}, "attacker_knows": "predictions"},
    "threads": 1,
    # These only feed the parts above.
    "dataset": {"name": "cora"},
    "difficulty": "easy",
    "fidelity": {"num_steps": 2},
    "flow": {"t_end": 1.0},
    "paths": {"outputs": "outputs"},
    "solver": {"method": "euler"},
    "surrogates": {"appnp": {"num_layers": 3}},
    "trainer": {"devices": 1},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    *parents, key = path.split(".")
    node = config
    for parent in parents:
        node = node[parent]
    node[key] = value
    return config


UNREAD = """
paths.outputs=elsewhere download=true force=true time_limit=60 solver.max_nfe=100 logger={a:1}
table={number:3} model._partial_=true model.flow.t_end=1 training.progress_bar=false
data.source.folder.root=/other
dataset.printed={nodes:2680} difficulty=full fidelity.num_steps=1 flow.t_end=0.5
solver.method=dopri5 surrogates.gat={} trainer.devices=2
adversary={} certificate={} timing={} attacks.speit.data_dir=/mine
budget.features=null budget.max_words=null
"""
"""Feed other parts alone, where they are read at all."""

READ = """
seed=1 threads=2 model.flow.t_end=0.5 model.variant=grb training.adversary={num_steps:1}
training.max_epochs=6 training.trainer.devices=2 data.name=pubmed data.edge_values=ids
data.source.folder.path=other attacks.speit.steps=4 budget.max_injected_nodes=4
budget.features=binary budget.max_words=5
data.transductive=true
threat.attacker_knows=labels threat.surrogates.appnp.variant=grb
callbacks={swa:{}} timing={'on':{cpu:here}}
model.flow.key=1 model.root=1 data.source.root=/mine threat.surrogates.appnp.progress_bar=1
"""
"""The last line has names that are ignored elsewhere."""


@pytest.mark.parametrize("option", [*UNREAD.split(), *READ.split()])
def test_read_keys_and_no_others_make_another_run(option: str) -> None:
    path, _, value = option.partition("=")
    found = run_id(changed(path, yaml.safe_load(value.replace(":", ": "))))
    assert (found != run_id(CONFIG)) == (option in READ.split())


@pytest.mark.faults
def test_what_a_kind_of_run_does_not_read_makes_no_other_run() -> None:
    assert run_id(dict(reversed(CONFIG.items()))) == run_id(CONFIG)
    clean = CONFIG | {"attacks": {}}
    other = clean | {"threat": {"name": "white_box"}, "budget": {"max_injected_nodes": 9}}
    assert run_id(other) == run_id(clean) != run_id(CONFIG)
    timed = CONFIG | {"timing": {"on": {"cpu": "here"}}}
    longer = {"max_epochs": 9, "trainer": {"devices": 1}}
    assert run_id(timed | {"training": longer, "attacks": {}}) == run_id(timed)
    elsewhere = {"max_epochs": 5, "trainer": {"devices": 2}}
    assert run_id(timed | {"training": elsewhere}) != run_id(timed)

    def limited(**limit: int | None) -> str:
        solver = {"method": "euler"} | limit
        surrogate = {"appnp": {"solver": solver}}
        return run_id(changed("model.solver", solver) | {"threat": {"surrogates": surrogate}})

    assert limited() == limited(max_nfe=None) == limited(max_nfe=5) != limited(num_steps=5)


def test_an_option_that_no_longer_exists_counts_as_published() -> None:
    target = "robust_diffusion.integrators.solver.Solver"
    now, published, other = (
        run_id(changed("model.solver", {"_target_": target, "method": "rk4", **options}))
        for options in ({}, {"checkpoint": False, "engine": "auto"}, {"engine": "own"})
    )
    assert now == published != other
    trainer = {"_target_": "pytorch_lightning.Trainer", "devices": 1}
    now, published = (
        run_id(changed("training.trainer", trainer | more)) for more in ({}, {"strategy": "auto"})
    )
    assert now == published
    for words in (("predictions", "predicted", "name", "name"), ("labels", True, "run", "cell")):
        threat = {"attacker_knows": words[0], "seeding": words[2]}
        then = {"labels": words[1], "seeding": words[3]}
        assert run_id(CONFIG | {"threat": threat}) == run_id(CONFIG | {"threat": then})


@pytest.mark.slow
def test_every_class_of_a_published_cell_is_found() -> None:
    records = read_records(PUBLISHED_RECORDS)
    found = {target for record in records for target in targets_of(record.config.whole)}
    assert len([get_object(target) for target in found]) > 40


def of(config: dict[str, Any], **content: Any) -> Record:
    return finished() | {"config": config, **content}


def test_results_are_compared_by_callbacks_and_by_the_contents_of_files() -> None:
    averaged = changed("callbacks", {"swa": {"lr": 0.1}})
    assert settings_of(of(averaged), "clean") != settings_of(of(CONFIG), "clean")
    files = {"data.source.path": {"own.pt": "hash"}}
    typed = [of(changed("data.source.path", path), user_files=files) for path in "ab"]
    assert settings_of(typed[0], "clean") == settings_of(typed[1], "clean")


def test_code_and_files_of_attacks_are_no_part_of_the_model() -> None:
    def settings(target: str, graph: str, **content: Any) -> str:
        config = CONFIG | {"attacks": {"pgd": {"_target_": target}}}
        return settings_of(of(config, **content), graph)

    own = {"user_code": {"mine": "a"}, "user_files": {"attacks.pgd.path": {".npz": "b"}}}
    assert settings("mine.Attack", "clean", **own) == settings("attacks.PGD", "clean")
    other = own | {"user_code": {"mine": "c"}}
    assert settings("mine.Attack", "pgd", **own) != settings("mine.Attack", "pgd", **other)
    model = changed("model._target_", "mine.Net")
    assert settings_of(of(model, **own), "clean") != settings_of(of(model, **other), "clean")


@pytest.mark.parametrize("name", ["given", "my-attack", "v1.5", "my attack"])
def test_the_folder_of_an_attacks_file_makes_no_other_run(name: str) -> None:
    ids = {run_id(CONFIG | {"attacks": {name: {"data_dir": folder}}}) for folder in ("/a", "/b")}
    assert len(ids) == 1
