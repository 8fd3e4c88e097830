"""Exports the small PyTorch models of tests/gradient_checks.rs and tests/cli/checks.rs: what a check has to find, to
pass, or to survive.

    python3 -m pip install torch onnx onnxscript
    python3 make_checks.py [--out FOLDER] [MODEL ...]

`embedding_bag`  dynamo exporter: a Loop, at which ONNX Runtime 1.31.1 ends by SIGSEGV where its backward pass is written
`index_add`      old exporter: a scatter whose indices repeat and that has no reduction, so that it adds nothing up
`zero_init`      a residual network whose blocks start at zero (zero-initialized normalization), each sum then on a kink
`distance`       old exporter: distances of points from points, some of them from themselves; it writes the root out, whose
                 derivative at zero is none
`dropout`        Dropout in training form, by both exporters

Torch's own seed decides every number, so that a second run writes the same files up to torch's version.
"""

import argparse
import io
import pathlib
import warnings

import torch
import torch.nn.functional as F
from torch import nn

warnings.simplefilter("ignore")
CLASSES = 4


class EmbeddingBag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 8, mode="mean")
        self.head = nn.Linear(8, CLASSES)

    def forward(self, ids):
        return self.head(self.bag(ids))


class IndexAdd(nn.Module):
    """A graph convolution on a fixed graph: messages are added up at their targets, of which some get several."""

    def __init__(self):
        super().__init__()
        self.message = nn.Linear(6, 8)
        self.head = nn.Linear(8, CLASSES)
        self.register_buffer("source", torch.tensor([0, 1, 2, 3, 0, 2, 4]))
        self.register_buffer("target", torch.tensor([1, 1, 3, 1, 4, 3, 0]))

    def forward(self, x):
        messages = torch.tanh(self.message(x))[:, self.source]
        nodes = torch.zeros(x.shape[0], 5, 8).index_add(1, self.target, messages)
        return self.head(nodes.sum(dim=1) + nodes.square().sum(dim=1))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.an = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.b, self.bn = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        nn.init.zeros_(self.bn.weight)

    def forward(self, x):
        return F.relu(x + self.bn(self.b(F.relu(self.an(self.a(x))))))


class ZeroInit(nn.Module):
    """As torchvision's `zero_init_residual`: behind a ReLU, x + 0 is zero wherever x is."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.blocks = nn.Sequential(Block(6), Block(6), Block(6))
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        return self.head(self.blocks(x).mean(dim=(2, 3)))


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, CLASSES)
        )

    def forward(self, x):
        return self.net(x)


class Distance(nn.Module):
    def __init__(self):
        super().__init__()
        self.place, self.head = nn.Linear(4, 4), nn.Linear(6, CLASSES)

    def forward(self, x):
        places = self.place(x)
        return self.head(torch.cdist(places, places[:, :2]).flatten(1))


MODELS = {
    "distance.script": (Distance, torch.randn(3, 3, 4), "x"),
    "embedding_bag.dynamo": (EmbeddingBag, torch.randint(20, (3, 5)), "ids"),
    "index_add.script": (IndexAdd, torch.randn(3, 5, 6), "x"),
    "zero_init.dynamo": (ZeroInit, torch.randn(3, 3, 8, 8), "x"),
    "zero_init.script": (ZeroInit, torch.randn(3, 3, 8, 8), "x"),
    "dropout.dynamo": (Dropping, torch.randn(3, 10), "x"),
    "dropout.script": (Dropping, torch.randn(3, 10), "x"),
}


def export(name, path):
    kind, example, data = MODELS[name]
    torch.manual_seed(0)
    model = kind().train()
    names = {"input_names": [data], "output_names": ["y"]}
    if name.endswith(".dynamo"):
        shapes = ({0: torch.export.Dim("batch")},)
        torch.onnx.export(
            model, (example,), path, dynamo=True, optimize=False, external_data=False, dynamic_shapes=shapes, **names
        )
        slim(path)
    else:
        torch.onnx.export(
            model, (example,), path, dynamo=False, opset_version=17, do_constant_folding=False,
            training=torch.onnx.TrainingMode.TRAINING, dynamic_axes={data: {0: "batch"}}, **names
        )


def slim(path):
    """Remarks of the exporter are most of a small file."""
    import onnx

    model = onnx.load(path)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for function in model.functions:
        for node in function.node:
            del node.metadata_props[:]
            node.doc_string = ""
    del model.graph.value_info[:]
    onnx.save(model, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    args = parser.parse_args()
    for name in args.models:
        path = args.out / f"{name}.onnx"
        export(name, str(path))
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
