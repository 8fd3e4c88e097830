#!/usr/bin/env python3
"""Exports the model of the example `cifar10`: ResNet-20 (He et al., CVPR 2016, section 4.2).

    python3 -m pip install torch onnx onnxscript
    python3 export_resnet20.py [--out FOLDER] [--seed N] [--exact]

It reads `x` (images, `[batch, 3, 32, 32]`) and writes `y` (a score for each class, `[batch, 10]`).
"""

import argparse

import torch
import torch.nn.functional as F
from export import arguments, export
from torch import nn


class Residual(nn.Module):
    """Two convolutions around which the input goes by; where the shape changes, every other pixel of it with channels
    of zeros, which has no parameters (option A of the paper)."""

    def __init__(self, i: int, o: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.stride, self.more = stride, o - i

    def forward(self, x):
        short = x
        if self.more:
            short = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.more // 2, self.more // 2))
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + short)


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        blocks, i = [], 16
        for o, stride in ((16, 1), (32, 2), (64, 2)):
            blocks += [Residual(i, o, stride), Residual(o, o, 1), Residual(o, o, 1)]
            i = o
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(64, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.blocks(F.relu(self.bn(self.conv(x))))
        return self.fc(x.mean((2, 3)))


def main() -> None:
    args = arguments(argparse.ArgumentParser(description=__doc__)).parse_args()
    torch.manual_seed(args.seed)
    export(ResNet20(), torch.zeros(2, 3, 32, 32), args.out / "resnet20.onnx.gz", args.exact)


if __name__ == "__main__":
    main()
