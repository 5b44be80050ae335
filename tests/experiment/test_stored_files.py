from pathlib import Path

from robust_diffusion.experiment.wandb_log import stored_files
from tests.paper.records import finished


def test_a_link_in_the_cache_is_not_uploaded(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (tmp_path / "secret").write_text("key")
    (store / "link").symlink_to(tmp_path / "secret")
    (store / "model").write_text("weights")
    record = finished(files={"victim": "model", "auto": "link"})
    assert stored_files(record, store) == {"victim": store / "model"}
