"""Exports one small PyTorch model in the ways that lose what only training needs, for tests/eval_form.rs.

    python3 -m pip install torch onnx onnxscript
    python3 make_eval_form.py [--out FOLDER]

* `folded.script`: torch.onnx.export(dynamo=False) as it is by default.
* `kept.script`: without constant folding, but in eval(): equal constants are one, with Identity nodes for the others.
* `training.script`: in training form.
* `folded.dynamo`: dynamo=True and the optimizer, in eval().
* `kept.dynamo`: dynamo=True without the optimizer, in eval().
* `training.dynamo`: the same in train().
* `optimized.dynamo`: in train(), with the optimizer, which folds all the same, and makes biases of its own.
* `tied.script`, `tied.dynamo`: two layers with one weight, which each exporter calls by the name of another layer.
* `merged.dynamo`: in train(), with the optimizer, which makes equal tensors one: a fresh norm's scale is its running
  variance as well, and the scale of every other norm; one of them has no parameters of its own.
* `copied.dynamo`, `copied.script`: two blocks of which one was copied from the other, so that their random weights are
  equal; with the optimizer, and in eval() without constant folding.
* `twice.dynamo`, `twice.script`: a module that is called twice, as each exporter does by default.
* `padded.dynamo`, `pretrained.dynamo`: an embedding whose row 0 is padding, of zeros or of other numbers.
* `plain.script`, `plain.dynamo`: a model without normalization, whose Dropout is lost in eval().
"""

import argparse
import contextlib
import copy
import io
import pathlib
import warnings

import onnx
import torch
import torch.nn.functional as F
from torch import nn


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.bn = nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3)
        self.b, self.bn2 = nn.Conv2d(3, 3, 3, bias=False), nn.BatchNorm2d(3)
        self.drop, self.fc = nn.Dropout(0.3), nn.Linear(12, 5)

    def forward(self, x):
        x = F.relu(self.bn(self.a(x)))
        return self.fc(self.drop(F.relu(self.bn2(self.b(x))).flatten(1)))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Dropout(0.3), nn.Linear(8, 5))

    def forward(self, x):
        return self.layers(x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(36, 36), nn.Linear(36, 36)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x.flatten(1)).relu())


class Merged(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.an = nn.Linear(36, 6), nn.BatchNorm1d(6)
        self.bn, self.cn = nn.BatchNorm1d(6, affine=False), nn.BatchNorm1d(6)
        self.fc = nn.Linear(6, 5)

    def forward(self, x):
        x = self.an(self.a(x.flatten(1)).relu())
        return self.fc(self.cn(self.bn(x.tanh()).relu()))


class Copied(nn.Module):
    def __init__(self):
        super().__init__()
        block = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8))
        self.blocks = nn.ModuleList([block, copy.deepcopy(block)])
        self.stem, self.fc = nn.Linear(36, 8), nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x.flatten(1))
        for block in self.blocks:
            x = x + block(x).relu()
        return self.fc(x)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 3, 3), nn.PReLU(3), nn.BatchNorm2d(3))
        self.norm, self.fc = nn.LayerNorm(4), nn.Linear(48, 5)

    def forward(self, x):
        both = self.norm(self.encoder(x)) - self.norm(self.encoder(x.flip(-1)))
        return self.fc(both.flatten(1))


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.fc = nn.Embedding(7, 4, padding_idx=0), nn.Linear(4, 5)

    def forward(self, ids):
        return self.fc(self.emb(ids).mean(1))


X = torch.zeros(2, 1, 6, 6)
IDS = torch.zeros(2, 3, dtype=torch.long)


def script(model, path, **how):
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "batch"}}}
    torch.onnx.export(model, (X,), str(path), dynamo=False, opset_version=17, **names, **how)


def dynamo(model, path, optimize, x=X):
    torch.onnx.export(
        model, (x,), str(path), dynamo=True, optimize=optimize, external_data=False,
        dynamic_shapes=({0: torch.export.Dim("batch")},), input_names=["x"], output_names=["y"],
    )  # fmt: skip
    # Lines of source code hold paths of the machine; what each node was stays.
    file = onnx.load(str(path))
    for node in file.graph.node:
        for at in reversed(range(len(node.metadata_props))):
            if node.metadata_props[at].key not in ("pkg.torch.onnx.fx_node", "pkg.torch.onnx.name_scopes"):
                del node.metadata_props[at]
        node.doc_string = ""
    onnx.save(file, str(path))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    out = parser.parse_args().out
    fresh = lambda build: (torch.manual_seed(1), build())[1]
    training = {"do_constant_folding": False, "training": torch.onnx.TrainingMode.TRAINING}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        script(fresh(Norms).eval(), out / "folded.script.onnx")
        script(fresh(Norms).eval(), out / "kept.script.onnx", do_constant_folding=False)
        script(fresh(Norms).train(), out / "training.script.onnx", **training)
        dynamo(fresh(Norms).eval(), out / "folded.dynamo.onnx", True)
        dynamo(fresh(Norms).eval(), out / "kept.dynamo.onnx", False)
        dynamo(fresh(Norms).train(), out / "training.dynamo.onnx", False)
        # A bias that is not zero stays when it is folded.
        model = fresh(Norms)
        for norm in (model.bn, model.bn2):
            nn.init.normal_(norm.bias)
        dynamo(model.train(), out / "optimized.dynamo.onnx", True)
        script(fresh(Tied).train(), out / "tied.script.onnx", **training)
        dynamo(fresh(Tied).train(), out / "tied.dynamo.onnx", False)
        dynamo(fresh(Merged).train(), out / "merged.dynamo.onnx", True)
        dynamo(fresh(Copied).train(), out / "copied.dynamo.onnx", True)
        script(fresh(Copied).eval(), out / "copied.script.onnx", do_constant_folding=False)
        dynamo(fresh(Twice).train(), out / "twice.dynamo.onnx", True)
        script(fresh(Twice).eval(), out / "twice.script.onnx")
        dynamo(fresh(Padded).train(), out / "padded.dynamo.onnx", False, IDS)
        model = fresh(Padded)
        nn.init.normal_(model.emb.weight)
        dynamo(model.train(), out / "pretrained.dynamo.onnx", False, IDS)
        script(fresh(Plain).eval(), out / "plain.script.onnx")
        dynamo(fresh(Plain).eval(), out / "plain.dynamo.onnx", False)


if __name__ == "__main__":
    main()
