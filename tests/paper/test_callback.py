import pytest
from omegaconf import OmegaConf

from robust_diffusion.paper.callback import PrintPaperTable
from robust_diffusion.records import append_record
from tests.paper.records import finished


def test_a_sweep_ends_with_a_table_per_variant(capsys: pytest.CaptureFixture[str]) -> None:
    path = "outputs/records.jsonl"
    config = OmegaConf.create(
        {
            "paths": {"records": path},
            "table": {"number": 3},
            "logger": None,
            "hydra": {
                "sweep": {"dir": "outputs/multirun/1"},
                "runtime": {"choices": {"scale": "full"}},
            },
        }
    )
    for job, fidelity in enumerate(["paper", "released"]):
        place = {"directory": f"multirun/1/{job}", "job": job}
        append_record(path, finished(0.5, fidelity=fidelity) | place)
    append_record(path, finished(0.6, seed=1) | {"directory": "multirun/0/0", "job": 0})
    PrintPaperTable().on_multirun_end(config)
    out = capsys.readouterr().out
    assert out.count("**Table 3 · flows under attack (flows)") == 2
    assert "55.00 ± 7.07" in out  # seeds of earlier sweeps count
