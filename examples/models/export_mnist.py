#!/usr/bin/env python3
"""Exports the models of the example `mnist`: a perceptron 784-300-100-10 and LeNet-5 (both of LeCun et al., Proc. IEEE
1998, with ReLU and maxima instead of the saturating units of their time).

    python3 -m pip install torch onnx onnxscript
    python3 export_mnist.py [--out FOLDER] [--seed N] [--exact]

Both read `x` (images, `[batch, 1, 28, 28]`) and write `y` (a score for each digit, `[batch, 10]`).
"""

import argparse

import torch
from export import arguments, export
from torch import nn


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)
    )


def lenet() -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    for layer in model:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return model


def main() -> None:
    args = arguments(argparse.ArgumentParser(description=__doc__)).parse_args()
    for name, build in (("mlp", mlp), ("lenet", lenet)):
        torch.manual_seed(args.seed)
        export(build(), torch.zeros(2, 1, 28, 28), args.out / f"{name}.onnx.gz", args.exact)


if __name__ == "__main__":
    main()
