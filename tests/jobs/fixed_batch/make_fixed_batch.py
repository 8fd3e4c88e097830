"""Exports small PyTorch models for one batch size, as torch.onnx.export does by default, for tests/batch_axis.rs.

    python3 -m pip install torch onnx onnxscript
    python3 make_fixed_batch.py [--out FOLDER]

* `cnn`: flattens by `view(x.size(0), -1)`; 4 samples.
* `attention`: a class token that is expanded to the batch, heads folded into the batch and back; 4 samples.
* `single`: the same, exported with 1 sample.
* `memory`: adds a tensor with a row for each sample, which no other batch fits; 4 samples.

Each by both exporters, `script` (dynamo=False) and `dynamo`.
"""

import argparse
import contextlib
import io
import math
import pathlib
import warnings

import onnx
import torch
import torch.nn.functional as F
from torch import nn


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(64, 3)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.conv(x))).view(x.size(0), -1))


class Attention(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads, self.embed = heads, nn.Linear(6, width)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width) * 0.1)
        self.qkv, self.head = nn.Linear(width, 3 * width), nn.Linear(width, 3)

    def forward(self, x):
        x = self.embed(x.squeeze(1))
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1)
        batch, time, width = x.shape
        fold = lambda t: t.reshape(batch, time, self.heads, -1).transpose(1, 2).reshape(batch * self.heads, time, -1)
        q, k, v = (fold(t) for t in self.qkv(x).split(width, dim=2))
        mixed = (q @ k.transpose(1, 2) / math.sqrt(width)).softmax(-1) @ v
        mixed = mixed.reshape(batch, self.heads, time, -1).transpose(1, 2).reshape(batch, time, width)
        return self.head((x + mixed)[:, 0])


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(36, 3)

    def forward(self, x):
        return self.head(x.flatten(1) + torch.arange(4.0).reshape(4, 1))


MODELS = {"cnn": (Cnn, 4), "attention": (Attention, 4), "single": (Attention, 1), "memory": (Memory, 4)}


def export(model, x, exporter, path):
    if exporter == "script":
        torch.onnx.export(
            model, (x,), str(path), dynamo=False, opset_version=17, do_constant_folding=False,
            training=torch.onnx.TrainingMode.TRAINING, input_names=["x"], output_names=["y"],
        )  # fmt: skip
        return
    torch.onnx.export(
        model, (x,), str(path), dynamo=True, optimize=False, external_data=False, input_names=["x"], output_names=["y"]
    )
    # Where in the Python source each node came from: paths, and most of the file.
    file = onnx.load(str(path))
    for node in file.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.save(file, str(path))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    args = parser.parse_args()
    for name, (build, batch) in MODELS.items():
        torch.manual_seed(1)
        model = build().train()
        for exporter in ("script", "dynamo"):
            path = args.out / f"{name}.{exporter}.onnx"
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                export(model, torch.randn(batch, 1, 6, 6), exporter, path)
            print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
