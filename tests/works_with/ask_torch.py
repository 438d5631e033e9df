"""Writes a linear layer of PyTorch, and what its softmax says."""

import pathlib
import sys

import agreement
import numpy as np
import torch

torch.manual_seed(0)
layer, x = torch.nn.Linear(16, 16), torch.randn(8, 16)
np.savez(
    pathlib.Path(sys.argv[1]) / "linear.npz",
    weight=layer.weight.detach(),
    bias=layer.bias.detach(),
    x=x,
    y=layer(x).softmax(-1).detach(),
)
agreement.versions("torch")
