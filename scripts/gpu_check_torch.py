"""The PyTorch half of gpu-check: makes the models, and measures PyTorch on them.

    python3 gpu_check_torch.py export MODEL FOLDER               needs torch, onnx and onnxscript
    python3 gpu_check_torch.py measure MODEL PRECISION [compiled] needs torch

MODEL is resnet50 or gpt, PRECISION f32, tf32 or bf16. `export` writes MODEL.onnx, random samples as MODEL.safetensors
and a job, MODEL.toml. `measure` prints one JSON object: the median of 20 steps, each of them forward, backward and SGD
on the same batch.
"""

import contextlib
import io
import json
import pathlib
import statistics
import struct
import sys
import time
import warnings

import torch
from torch import nn
from torch.nn import functional as F

# Samples of one step, and of the random data: an epoch is eight steps.
BATCH = {"resnet50": 64, "gpt": 8}
SAMPLES_PER_STEP = 8
CLASSES, CONTEXT, VOCABULARY = 1000, 512, 50304


class Bottleneck(nn.Module):
    """Three convolutions of He et al., CVPR 2016, with the stride in the second one."""

    def __init__(self, into: int, width: int, stride: int):
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(into, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.beside = None
        if stride != 1 or into != out:
            self.beside = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(y)))))
        return F.relu(y + (x if self.beside is None else self.beside(x)))


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, into = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for index in range(count):
                blocks.append(Bottleneck(into, width, stride if index == 0 else 1))
                into = 4 * width
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(into, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.ln1(x)).split(width, dim=2)
        q, k, v = (t.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 small: 12 blocks, 768 wide, 124 million parameters."""

    def __init__(self, width: int = 768, heads: int = 12, blocks: int = 12):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks, self.ln = nn.ModuleList(Block(width, heads) for _ in range(blocks)), nn.LayerNorm(width)
        for embedding in (self.tokens, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.ln(x) @ self.tokens.weight.t()


def make(name: str):
    torch.manual_seed(0)
    return {"resnet50": ResNet50, "gpt": Gpt}[name]().train()


def samples(name: str, count: int):
    """Random inputs as bytes or numbers, and labels."""
    random = torch.Generator().manual_seed(1)
    if name == "resnet50":
        images = torch.randint(0, 256, (count, 3, 224, 224), generator=random, dtype=torch.uint8)
        return images, torch.randint(0, CLASSES, (count,), generator=random)
    tokens = torch.randint(0, VOCABULARY, (count, CONTEXT + 1), generator=random)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def save(path: pathlib.Path, arrays) -> None:
    """A safetensors file: a JSON header, then the arrays one after the other."""
    kinds = {torch.uint8: "U8", torch.int64: "I64"}
    header, data = {}, []
    end = 0
    for name, array in arrays.items():
        content = bytes(array.flatten().view(torch.uint8).numpy().data)
        offsets = [end, end + len(content)]
        header[name] = {"dtype": kinds[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        data.append(content)
        end += len(content)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def export(name: str, folder: pathlib.Path) -> None:
    model, (inputs, labels) = make(name), samples(name, BATCH[name] * SAMPLES_PER_STEP)
    sample = inputs[:2] if name == "gpt" else inputs[:2].float()
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with warnings.catch_warnings(), quiet[0], quiet[1]:
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (sample,), str(folder / f"{name}.onnx"), dynamo=True, optimize=False, external_data=False,
            input_names=["x"], dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
    save(folder / f"{name}.safetensors", {"x": inputs, "label": labels})
    (folder / f"{name}.txt").write_text("\n".join(n for n, p in model.named_parameters() if p.requires_grad))
    scale = "" if name == "gpt" else "scale = 0.00392156862745098\n"
    (folder / f"{name}.toml").write_text(
        f'id = "{name}"\n\n[[node]]\nname = "train"\ndo = "train"\n'
        f'model = {{ forward = {{ onnx = "{name}.onnx", loss = "softmax-cross-entropy" }} }}\n\n'
        f'[node.data]\nsource = {{ safetensors = {{ path = "{name}.safetensors" }} }}\n{scale}\n'
        f'[node.settings]\nparams = "{name}.txt"\npolicy = "asp"\noptimizer = "sgd"\nlearning_rate = 0.001\n'
        f"batch = {BATCH[name]}\nepochs = 1\ncheck = false\n"
    )


def measure(name: str, precision: str, compiled: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    model, (inputs, labels) = make(name).cuda(), samples(name, BATCH[name])
    inputs, labels = inputs.cuda(), labels.cuda()
    inputs = inputs if name == "gpt" else inputs.float() / 255
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    run = torch.compile(model) if compiled else model

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            scores = run(inputs)
        F.cross_entropy(scores.float().flatten(0, -2), labels.flatten()).backward()
        optimizer.step()
        torch.cuda.synchronize()

    times = []
    for _ in range(25):
        begun = time.perf_counter()
        step()
        times.append(time.perf_counter() - begun)
    median = statistics.median(times[5:])
    print(json.dumps({"ms": 1e3 * median, "samples_per_s": BATCH[name] / median, "torch": torch.__version__}))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["export", name, folder]:
            export(name, pathlib.Path(folder))
        case ["measure", name, precision, *rest]:
            measure(name, precision, rest == ["compiled"])
        case _:
            sys.exit(__doc__)
