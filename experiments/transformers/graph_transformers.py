"""Graph transformers of PyTorch Geometric, trained and attacked on one graph."""

from pathlib import Path

import torch
from torch import nn
from torch_geometric.nn import GCNConv, GPSConv
from torch_geometric.nn.models import Polynormer, SGFormer

from robust_diffusion import Budget, evaluate, fit, open_dataset
from robust_diffusion.models import GCN, MLP


class GPS(nn.Module):
    """Two layers of convolution beside attention of all nodes to all."""

    def __init__(self, in_channels, width, out_channels):
        super().__init__()
        self.first, self.last = nn.Linear(in_channels, width), nn.Linear(width, out_channels)
        self.layers = nn.ModuleList(GPSConv(width, GCNConv(width, width), 4) for _ in range(2))

    def forward(self, x, edge_index):
        """Logits of every node."""
        x = self.first(x)
        for layer in self.layers:
            x = layer(x, edge_index)
        return self.last(x)


class OneGraph(nn.Module):
    """A model of several graphs, on one."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        model._global = True  # Polynormer's attention, which is off at first

    def forward(self, x, edge_index):
        """Logits of the one graph."""
        return self.model(x, edge_index, edge_index.new_zeros(x.size(0)))


MODELS = {
    "GPS": GPS,
    "SGFormer": lambda *widths, out_channels: OneGraph(SGFormer(*widths, out_channels)),
    "Polynormer": lambda *widths, out_channels: OneGraph(Polynormer(*widths, out_channels)),
    "GCN": GCN,
    "MLP": MLP,
}


def main(data, folder, *, budget, attacks="auto", **training):
    """Train and attack each; the reports go into a folder."""
    for name, build in MODELS.items():
        torch.manual_seed(0)
        model = build(data.num_features, 64, out_channels=data.num_classes)
        fit(model, data, **training)
        report = evaluate(model, data, attacks=attacks, budget=budget)
        Path(folder, f"{name}.json").write_text(report.to_json() + "\n")


if __name__ == "__main__":
    main(open_dataset("cora"), ".", budget=Budget(50, 50, (-0.94, 0.94)), max_epochs=200)
