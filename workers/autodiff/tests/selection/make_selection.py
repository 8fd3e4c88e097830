"""Exports small PyTorch models of which only a part is trained, for tests/selection_models.rs.

    python3 -m pip install torch onnx onnxscript
    python3 make_selection.py [--out FOLDER] [MODEL ...]

Each model comes by both exporters, `script` (dynamo=False) and `dynamo`, in training form and with all names kept, and
with `NAME.named.onnx`, the dynamo export whose metadata names the parameters that train. `NAME.txt` holds those names as
PyTorch prints them, one a line.

* `llama`: RMS norms, grouped rotary attention whose `inv_freq` is a buffer, gated MLP.
* `sinusoid`: an encoder layer on top of the sinusoidal positions of PyTorch's own tutorial, in a buffer `pe`.
* `frozen`: a CNN with BatchNormalization, whose first block has `requires_grad = False`, and a buffer that scales.
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


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Rotary(nn.Module):
    def __init__(self, width):
        super().__init__()
        rates = 1.0 / (10000.0 ** (torch.arange(0, width, 2).float() / width))
        self.register_buffer("inv_freq", rates)

    def forward(self, length):
        angles = torch.outer(torch.arange(length).float(), self.inv_freq)
        angles = torch.cat((angles, angles), -1)
        return angles.cos(), angles.sin()


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(width), RmsNorm(width)
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.gate_proj, self.up_proj = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(2 * width, width, bias=False)
        self.rotary_emb = Rotary(width // heads)

    def forward(self, x):
        batch, time, width = x.shape
        y = self.input_layernorm(x)
        split = lambda t: t.reshape(batch, time, self.heads, width // self.heads).transpose(1, 2)
        q, k, v = split(self.q_proj(y)), split(self.k_proj(y)), split(self.v_proj(y))
        cos, sin = self.rotary_emb(time)
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        mask = torch.full((time, time), float("-inf")).triu(1)
        scores = (q @ k.transpose(-2, -1) / math.sqrt(width // self.heads) + mask).softmax(-1)
        x = x + self.o_proj((scores @ v).transpose(1, 2).reshape(batch, time, width))
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    def __init__(self, vocabulary=16, width=8, heads=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaBlock(width, heads) for _ in range(1))
        self.norm, self.lm_head = RmsNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


class PositionalEncoding(nn.Module):
    def __init__(self, width, longest):
        super().__init__()
        position = torch.arange(longest).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        pe = torch.zeros(1, longest, width)
        pe[0, :, 0::2], pe[0, :, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[:, : x.shape[1]]


class Sinusoid(nn.Module):
    def __init__(self, vocabulary=16, width=8, time=6):
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, width)
        self.pos_encoder = PositionalEncoding(width, 3 * time)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 12), nn.Linear(12, width)
        self.decoder = nn.Linear(width, 5)

    def forward(self, ids):
        x = self.pos_encoder(self.encoder(ids))
        x = x + self.down(F.relu(self.up(self.norm(x))))
        return self.decoder(x.mean(1))


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(4, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU())
        self.head = nn.Linear(6, 5)
        self.register_buffer("channel_scale", torch.tensor([0.5, 1.0, 1.5]).reshape(1, 3, 1, 1))
        for parameter in self.stem.parameters():
            parameter.requires_grad = False

    def forward(self, x):
        return self.head(self.body(self.stem(x * self.channel_scale)).mean((2, 3)))


MODELS = {
    "llama": (Llama, lambda batch: torch.randint(0, 16, (batch, 6))),
    "sinusoid": (Sinusoid, lambda batch: torch.randint(0, 16, (batch, 6))),
    "frozen": (Frozen, lambda batch: torch.randn(batch, 3, 8, 8)),
}


def export(model, x, exporter, path):
    if exporter == "script":
        torch.onnx.export(
            model, (x,), str(path), dynamo=False, opset_version=17, do_constant_folding=False,
            training=torch.onnx.TrainingMode.TRAINING, input_names=["x"], output_names=["y"],
            dynamic_axes={"x": {0: "batch"}},
        )  # fmt: skip
        return
    torch.onnx.export(
        model, (x,), str(path), dynamo=True, optimize=False, external_data=False,
        dynamic_shapes=({0: torch.export.Dim("batch")},), input_names=["x"], output_names=["y"],
    )  # fmt: skip


def strip(path):
    """Without the lines of source code that each node came from: they hold paths, and take most of the room."""
    file = onnx.load(str(path))
    for node in file.graph.node:
        for at in reversed(range(len(node.metadata_props))):
            if node.metadata_props[at].key not in ("pkg.torch.onnx.fx_node",):
                del node.metadata_props[at]
        node.doc_string = ""
    onnx.save(file, str(path))


def trainable(model):
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def name_trainable(model, path):
    """What docs/models.md shows."""
    file = onnx.load(path)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    onnx.helper.set_model_props(file, {"syncline.trainable": "\n".join(names)})
    onnx.save(file, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.models or MODELS:
        build, feed = MODELS[name]
        torch.manual_seed(1)
        model = build().train()
        (args.out / f"{name}.txt").write_text("\n".join(trainable(model)) + "\n")
        for exporter in ("script", "dynamo", "named"):
            path = args.out / f"{name}.{exporter}.onnx"
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                export(model, feed(3), exporter, path)
            strip(path)
            if exporter == "named":
                name_trainable(model, str(path))
            print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
