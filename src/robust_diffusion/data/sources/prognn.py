"""The clean graphs and splits by which studies of poisoning compare."""

import json

from torch_geometric.data import Data

from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.data.files import reading
from robust_diffusion.data.sources.custom import read_graph
from robust_diffusion.data.validate import build_graph


def load_prognn(folder: DatasetFolder, name: str) -> Data:
    """Read `<name>.npz`, a largest connected component, and the split of Pro-GNN.

    `<name>.npz` holds CSR adjacency, CSR features and labels; `<name>_prognn_splits.json` the node
    numbers idx_train, idx_val and idx_test. All files of the folder are verified, those of the
    poisoned graphs too, which `GivenGraph` reads.

    Reference: Jin et al. 2020, arXiv:2005.10203; components and poisoned graphs as of Zügner and
    Günnemann 2019, arXiv:1902.08412.
    """
    paths = {file: folder.file(file) for file in folder.names}
    path, split_path = paths[f"{name}.npz"], paths[f"{name}_prognn_splits.json"]
    adjacency, features, labels, _ = read_graph(path)
    with reading(split_path):
        held = json.loads(split_path.read_text(encoding="utf-8"))
        splits = {part: held[f"idx_{part}"] for part in ("train", "val", "test")}
    graph = build_graph(adjacency, features, labels, splits, where=path)
    folder.keep_hashes()
    return graph
