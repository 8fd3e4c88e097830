"""Trains a model of which a part evaluates, as PyTorch does it: what tests/eval_parts.rs compares with.

    python3 -m pip install torch onnx onnxscript safetensors
    python3 make_eval_parts.py [--out FOLDER]

`dynamo.onnx`, `script.onnx`: the model in training form, by both exporters; its body has moved its statistics already, its
Dropout drops half, and that of the head nothing, so that numbers can be compared
`steps.safetensors`: the batches of five steps, and all tensors of the model behind them; `model.train(); model.body.eval()`,
and SGD on all parameters

Torch's own seed decides every number, so that a second run writes the same files up to torch's version.
"""

import argparse
import pathlib
import warnings

import onnx
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

warnings.simplefilter("ignore")
STEPS, BATCH, RATE = 5, 8, 0.1
# The exporters leave out a Dropout of rate 0.
RARELY = 1e-9


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(4 * 16, 8), nn.BatchNorm1d(8), nn.Dropout(RARELY), nn.Linear(8, 3)
        )

    def forward(self, x):
        return self.head(self.body(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    out = parser.parse_args().out
    torch.manual_seed(0)
    model = Net().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step(x, labels):
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()

    def batch():
        return 2 * torch.randn(BATCH, 1, 6, 6) + 1, torch.randint(3, (BATCH,))

    for _ in range(20):
        step(*batch())
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x = torch.randn(BATCH, 1, 6, 6)
    torch.onnx.export(model, (x,), out / "dynamo.onnx", dynamo=True, optimize=False, external_data=False,
                      verbose=False, dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.onnx.export(model, (x,), out / "script.onnx", dynamo=False, opset_version=17, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING, input_names=["x"],
                      dynamic_axes={"x": {0: "batch"}})
    # An exporter that runs the model moves its statistics.
    for path in [out / "dynamo.onnx", out / "script.onnx"]:
        file = onnx.load(path)
        for tensor in file.graph.initializer:
            if tensor.name in state:
                tensor.CopyFrom(onnx.numpy_helper.from_array(state[tensor.name].numpy(), tensor.name))
        onnx.save(file, path)
    model.load_state_dict(state)
    model.train()
    model.body.eval()
    batches = [batch() for _ in range(STEPS)]
    for x, labels in batches:
        step(x, labels)
    numbers = {f"x.{at}": x for at, (x, _) in enumerate(batches)}
    numbers |= {f"label.{at}": labels for at, (_, labels) in enumerate(batches)}
    numbers |= {f"after.{name}": tensor for name, tensor in model.state_dict().items() if tensor.dim() > 0}
    save_file({name: tensor.contiguous() for name, tensor in numbers.items()}, out / "steps.safetensors")


main()
