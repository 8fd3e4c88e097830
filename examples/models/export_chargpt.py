#!/usr/bin/env python3
"""Exports the model of the example `chargpt`: a small GPT (Radford et al., 2019) that reads characters.

    python3 -m pip install torch onnx onnxscript
    python3 export_chargpt.py [--out FOLDER] [--seed N] [--exact] [--vocabulary 96] [--context 64]
                              [--width 64] [--heads 4] [--blocks 2]

It reads `x` (characters as numbers, int64 `[batch, context]`) and writes `y` (a score for each character that may
follow, at each position, `[batch, context, vocabulary]`). A vocabulary larger than that of the text does no harm.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from export import arguments, export
from torch import nn


class Attention(nn.Module):
    """Each position looks at itself and what is before it."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (t.reshape(batch, time, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Token and position embeddings, blocks, and an output tied to the token embedding."""

    def __init__(self, vocabulary: int, context: int, width: int, heads: int, blocks: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.ln = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # What is added to the residual stream shrinks with its number.
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * blocks) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.ln(x) @ self.tokens.weight.t()


def main() -> None:
    parser = arguments(argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter))
    for name, default in (("vocabulary", 96), ("context", 64), ("width", 64), ("heads", 4), ("blocks", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    model = Gpt(args.vocabulary, args.context, args.width, args.heads, args.blocks)
    sample = torch.zeros(2, args.context, dtype=torch.int64)
    export(model, sample, args.out / "chargpt.onnx.gz", args.exact)


if __name__ == "__main__":
    main()
