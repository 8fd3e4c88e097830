"""Exports a model that detaches, with the gradients that PyTorch computes: what tests/stop_gradient.rs compares with.

    python3 -m pip install torch onnx onnxscript safetensors
    python3 make_stop_gradient.py [--out FOLDER]

`dynamo.onnx`: two branches that predict each other (SimSiam), a straight-through estimator, a teacher, a scale of ones of which
only the numbers count, and a value that is turned, detached and turned back
`gradients.safetensors`: a batch, its loss, and the gradient of each parameter, zeros where PyTorch has none

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


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self.predictor = nn.Linear(4, 4)
        self.codes = nn.Linear(4, 3)
        self.teacher = nn.Linear(6, 4)
        self.turned = nn.Linear(2, 3)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, a, b):
        za, zb = self.encoder(a), self.encoder(b)
        pa, pb = self.predictor(za), self.predictor(zb)
        loss = -F.cosine_similarity(pa, zb.detach()) - F.cosine_similarity(pb, za.detach())
        rounded = za + (torch.round(4 * za) / 4 - za).detach()
        loss = loss + self.codes(rounded).square().mean(1)
        loss = loss + (zb * self.scale.detach() - self.teacher(b).detach()).square().mean(1)
        kept = zb.reshape(-1, 2, 2).transpose(1, 2).detach()
        loss = loss + self.turned(kept.transpose(1, 2)).square().mean((1, 2))
        return loss, loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    out = parser.parse_args().out
    torch.manual_seed(0)
    model = Net().train()
    a, b = torch.randn(5, 6), torch.randn(5, 6)
    batch = torch.export.Dim("batch")
    torch.onnx.export(model, (a, b), out / "dynamo.onnx", dynamo=True, optimize=False, external_data=False, verbose=False,
                      dynamic_shapes=({0: batch}, {0: batch}))
    # Where this file lies is nobody's business.
    file = onnx.load(out / "dynamo.onnx")
    for node in file.graph.node:
        kept = [entry for entry in node.metadata_props if not entry.key.endswith("stack_trace")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(file, out / "dynamo.onnx")
    loss = model(a, b)[0].mean()
    loss.backward()
    numbers = {"a": a, "b": b, "loss": loss.detach()}
    for name, parameter in model.named_parameters():
        grad = parameter.grad
        numbers[f"grad.{name}"] = torch.zeros_like(parameter) if grad is None else grad
    save_file({name: tensor.detach().contiguous() for name, tensor in numbers.items()}, out / "gradients.safetensors")


main()
