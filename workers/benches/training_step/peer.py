#!/usr/bin/env python3
"""The models of the benchmark `training_step`, as PyTorch has them: exported to ONNX, and timed in PyTorch eager.

    python peer.py --export FOLDER      writes every model that is not there yet as FOLDER/NAME.onnx (needs torch, onnx,
                                        onnxscript; about 600 MB)
    python peer.py --serve              answers lines `NAME THREADS STEPS` with the median time of a step in ms

A step is forward and backward, without an optimizer. Weights and data are random: only the speed counts.
"""

import argparse
import contextlib
import io
import math
import pathlib
import statistics
import sys
import time
import warnings

import torch
import torch.nn.functional as F
from torch import nn

WORDS = 1000


def mlp():
    sizes = (784, 512, 256)
    layers = [layer for i, o in zip(sizes, sizes[1:]) for layer in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(256, 10))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, time_, width = x.shape
        parts = self.qkv(x).split(width, dim=2)
        q, k, v = (t.reshape(batch, time_, self.heads, width // self.heads).transpose(1, 2) for t in parts)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        mask = torch.ones(time_, time_, dtype=torch.bool).tril()
        mixed = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, time_, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Transformer(nn.Module):
    def __init__(self, layers, width, heads, length, words=WORDS):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.ln(self.blocks(x)))


def conv(i, o, kernel=3, stride=1, groups=1, act=nn.ReLU):
    layers = [nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(o)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Residual(nn.Module):
    def __init__(self, body, i, o, stride):
        super().__init__()
        self.body = body
        self.short = conv(i, o, 1, stride, act=None) if (i, stride) != (o, 1) else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def resnet20():
    layers, i = [conv(3, 16)], 16
    for o, stages in ((16, (1, 1, 1)), (32, (2, 1, 1)), (64, (2, 1, 1))):
        for stride in stages:
            layers.append(Residual(nn.Sequential(conv(i, o, 3, stride), conv(o, o, act=None)), i, o, stride))
            i = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 10))


def resnet50():
    layers, i = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if block == 0 and width > 64 else 1
            body = nn.Sequential(conv(i, width, 1), conv(width, width, 3, stride), conv(width, 4 * width, 1, act=None))
            layers.append(Residual(body, i, 4 * width, stride))
            i = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 1000))


class Inverted(nn.Module):
    def __init__(self, i, o, stride, widen):
        super().__init__()
        wide = i * widen
        depthwise = conv(wide, wide, 3, stride, groups=wide, act=nn.ReLU6)
        self.body = nn.Sequential(conv(i, wide, 1, act=nn.ReLU6), depthwise, conv(wide, o, 1, act=None))
        self.skip = i == o and stride == 1

    def forward(self, x):
        return x + self.body(x) if self.skip else self.body(x)


def mobilenet():
    blocks = ((16, 16, 1, 2), (16, 32, 2, 6), (32, 32, 1, 6), (32, 64, 2, 6), (64, 64, 1, 6))
    body = (conv(3, 16, act=nn.ReLU6), *(Inverted(*block) for block in blocks))
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def image(side):
    return lambda batch: torch.randn(batch, 3, side, side)


def ids(length):
    return lambda batch: torch.randint(0, WORDS, (batch, length))


# name: model, input of a batch, batch. The last two are derived only.
MODELS = {
    "mlp": (mlp, lambda batch: torch.randn(batch, 784), 128),
    "transformer": (lambda: Transformer(2, 128, 4, 32), ids(32), 32),
    "resnet20": (resnet20, image(32), 64),
    "mobilenet": (mobilenet, image(32), 64),
    "resnet50": (resnet50, image(224), 2),
    # 12 layers of 768 and 20,000 words: 116 million parameters.
    "transformer100m": (lambda: Transformer(12, 768, 12, 128, 20_000), ids(128), 2),
}


def export(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, (build, feed, _) in MODELS.items():
        path = folder / f"{name}.onnx"
        if path.exists():
            continue
        torch.manual_seed(0)
        silence = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                build().train(), (feed(2),), dynamo=True, opset_version=18, optimize=False, input_names=["x"],
                output_names=["y"], dynamic_shapes=({0: torch.export.Dim("batch")},), external_data=False,
            )
            program.save(str(path), external_data=False)
        print(f"wrote {path.name}", file=sys.stderr)


def stepper(name):
    build, feed, batch = MODELS[name]
    torch.manual_seed(0)
    model, x = build().train(), feed(batch)
    y = model(x)
    labels = torch.randint(0, y.shape[-1], y.shape[:-1])

    def step():
        model.zero_grad(set_to_none=True)
        y = model(x)
        F.cross_entropy(y.flatten(0, -2), labels.flatten()).backward()

    return step


def serve():
    known = {}
    for line in sys.stdin:
        name, threads, steps = line.split()
        torch.set_num_threads(int(threads))
        step = known[name] = known.get(name) or stepper(name)
        step()
        times = []
        for _ in range(int(steps)):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        print(f"{statistics.median(times) * 1e3}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--serve", action="store_true")
    args = parser.parse_args()
    if args.export:
        export(args.export)
    if args.serve:
        serve()


if __name__ == "__main__":
    main()
