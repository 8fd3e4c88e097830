"""Exports small PyTorch models and writes down what training them should do, for tests/models.rs.

    python3 -m pip install torch onnx onnxscript safetensors numpy
    python3 make_expectations.py [--out FOLDER] [MODEL ...]

Exporters: `script` and `dynamo` in training form with all names kept, `folded` is what `torch.onnx.export(...,
dynamo=False)` does by default, which folds transposed weights into new constants.

For each model and exporter one `.onnx` file (the forward model as torch.onnx.export writes it) and one
`.safetensors` file with

    input.NAME     what is fed; float32 or int64
    label          int64
    grad.NAME      gradient of the mean cross-entropy by torch in float64, rounded to float32
    new.NAME       running statistics after one step, likewise
    losses         loss before each of 20 steps of plain gradient descent on this batch, float64
    f32_error      per gradient in the order of their names: max|torch float32 - float64| / max|float64|, where gradients
                   below 1e-4 of the largest count as that
    rate           learning rate of the 20 steps

Metadata: `loss` (its name), `exporter`, `parameters` (trained names, separated by spaces). Names are those of the
ONNX file. Torch's own seed decides every number, so that a second run writes the same files up to torch's version.
"""

import argparse
import contextlib
import io
import math
import pathlib
import warnings

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from safetensors.numpy import save_file
from torch import nn

CLASSES = 5
STEPS = 20


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, CLASSES))

    def forward(self, x):
        return self.net(x)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 5), nn.Tanh(), nn.MaxPool2d(2)
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, CLASSES))

    def forward(self, x):
        return self.head(self.features(x))


class ConvNet(nn.Module):
    """Strides, dilation, groups and global pooling, no normalization."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.b = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.c = nn.Conv2d(8, 16, 3, padding=1, groups=4)
        self.d = nn.Conv2d(16, 16, 1)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = F.relu(self.a(x))
        x = F.leaky_relu(self.b(x), 0.1)
        x = F.elu(self.c(x))
        x = F.silu(self.d(x)) + x
        return self.head(x.mean((2, 3)))


class AlexNet(nn.Module):
    """Overlapping pools, adaptive pooling, and Dropout that drops nothing, so that torch and ONNX Runtime agree."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=2, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(8, 12, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 12, 3, padding=1), nn.ReLU(),
            nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Sequential(
            nn.Dropout(0.0), nn.Linear(12, 24), nn.ReLU(), nn.Dropout(0.0), nn.Linear(24, 24), nn.ReLU(),
            nn.Linear(24, CLASSES),
        )  # fmt: skip

    def forward(self, x):
        return self.head(torch.flatten(self.pool(self.features(x)), 1))


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (t.reshape(batch, time, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        if self.causal:
            mask = torch.ones(time, time, dtype=torch.bool).tril()
            scores = scores.masked_fill(~mask, float("-inf"))
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, time, width)
        return self.out(mixed)


class Block(nn.Module):
    def __init__(self, width, heads, causal, pre=True):
        super().__init__()
        self.pre = pre
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        if self.pre:
            x = x + self.attention(self.ln1(x))
            return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))
        x = self.ln1(x + self.attention(x))
        return self.ln2(x + self.down(F.gelu(self.up(x))))


class Gpt2(nn.Module):
    """Token and position embeddings, two causal blocks, output tied to the token embedding."""

    def __init__(self, vocabulary=64, width=24, time=10):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(time, width)
        self.blocks = nn.ModuleList(Block(width, 4, causal=True) for _ in range(2))
        self.ln = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.ln(x) @ self.tokens.weight.t()


class Bert(nn.Module):
    """Post-norm blocks, classification by the first token."""

    def __init__(self, vocabulary=48, width=24, time=9):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(time, width)
        self.ln = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, 3, causal=False, pre=False) for _ in range(2))
        self.pooler, self.head = nn.Linear(width, width), nn.Linear(width, CLASSES)

    def forward(self, ids):
        x = self.ln(self.tokens(ids) + self.places(torch.arange(ids.shape[1])))
        for block in self.blocks:
            x = block(x)
        return self.head(torch.tanh(self.pooler(x[:, 0])))


class Vit(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.cls = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, 3, causal=False) for _ in range(2))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x)[:, 0])


def conv_bn(i, o, kernel=3, stride=1, groups=1, act=nn.ReLU):
    layers = [nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(o)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Residual(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.a, self.b = conv_bn(i, o, stride=stride), conv_bn(o, o, act=None)
        self.short = conv_bn(i, o, 1, stride, act=None) if (i, stride) != (o, 1) else nn.Identity()

    def forward(self, x):
        return F.relu(self.b(self.a(x)) + self.short(x))


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        layers, i = [conv_bn(3, 4)], 4
        for o, stride in ((4, 1), (8, 2), (12, 2)):
            for block in range(3):
                layers.append(Residual(i, o, stride if block == 0 else 1))
                i = o
        self.body, self.head = nn.Sequential(*layers), nn.Linear(i, CLASSES)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.body(x), 1).flatten(1))


class Inverted(nn.Module):
    def __init__(self, i, o, stride, widen):
        super().__init__()
        wide = i * widen
        self.body = nn.Sequential(
            conv_bn(i, wide, 1, act=nn.ReLU6),
            conv_bn(wide, wide, 3, stride, groups=wide, act=nn.ReLU6),
            conv_bn(wide, o, 1, act=None),
        )
        self.skip = i == o and stride == 1

    def forward(self, x):
        return x + self.body(x) if self.skip else self.body(x)


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            conv_bn(3, 8, act=nn.ReLU6), Inverted(8, 8, 1, 2), Inverted(8, 12, 2, 3), Inverted(12, 12, 1, 3)
        )
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class Dense(nn.Module):
    def __init__(self, i, grow):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(i), nn.Conv2d(i, 2 * grow, 1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(2 * grow), nn.Conv2d(2 * grow, grow, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.conv1(F.relu(self.bn1(x)))
        return torch.cat([x, self.conv2(F.relu(self.bn2(y)))], 1)


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.one = nn.Sequential(Dense(8, 4), Dense(12, 4))
        self.shrink = nn.Sequential(nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1, bias=False), nn.AvgPool2d(2))
        self.two = nn.Sequential(Dense(8, 4), Dense(12, 4))
        self.bn, self.head = nn.BatchNorm2d(16), nn.Linear(16, CLASSES)

    def forward(self, x):
        x = self.two(self.shrink(self.one(self.stem(x))))
        return self.head(F.adaptive_avg_pool2d(F.relu(self.bn(x)), 1).flatten(1))


class UNet(nn.Module):
    """Segmentation: one class per pixel, with skips, transposed convolution and nearest up-sampling."""

    def __init__(self):
        super().__init__()
        self.d1, self.d2, self.mid = conv_bn(3, 6), conv_bn(6, 8), conv_bn(8, 12)
        self.up2, self.u2 = nn.ConvTranspose2d(12, 8, 2, 2), conv_bn(16, 8)
        self.u1, self.out = conv_bn(14, 6), nn.Conv2d(6, 3, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([self.up2(c), b], 1))
        b = F.interpolate(b, scale_factor=2, mode="nearest")
        return self.out(self.u1(torch.cat([b, a], 1)))


class VggBn(nn.Module):
    def __init__(self):
        super().__init__()
        layers, i = [], 3
        for o in (6, "pool", 8, 8, "pool", 12, "pool"):
            if o == "pool":
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()]
                i = o
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(12 * 4, 24), nn.ReLU(), nn.Linear(24, CLASSES))

    def forward(self, x):
        return self.head(self.features(x))


def image(side, channels=3):
    return lambda batch: torch.randn(batch, channels, side, side)


def ids(vocabulary, time):
    return lambda batch: torch.randint(0, vocabulary, (batch, time))


# name: model, input of one batch, learning rate
MODELS = {
    "mlp": (Mlp, lambda batch: torch.randn(batch, 12), 0.1),
    "lenet": (LeNet, image(12, 1), 0.05),
    "convnet": (ConvNet, image(12), 0.05),
    "alexnet": (AlexNet, image(40), 0.05),
    "vit": (Vit, image(16), 0.02),
    "gpt2": (Gpt2, ids(64, 10), 0.05),
    "bert": (Bert, ids(48, 9), 0.05),
    "resnet20": (ResNet20, image(12), 0.02),
    "mobilenet": (MobileNet, image(12), 0.02),
    "densenet": (DenseNet, image(8), 0.02),
    "unet": (UNet, image(12), 0.05),
    "vgg_bn": (VggBn, image(16), 0.02),
}
# By default BatchNormalization is folded as well, and the tied weight of gpt2 becomes two constants.
FOLDED = ("mlp", "lenet", "convnet", "alexnet", "vit", "bert")
BATCH = 4


def loss_of(y, label):
    """Cross-entropy; classes are the last axis of sequences, else axis 1."""
    return F.cross_entropy(y.transpose(1, 2) if y.dim() == 3 else y, label)


def labels_for(y):
    if y.dim() == 3:
        return torch.randint(0, y.shape[2], y.shape[:2])
    return torch.randint(0, y.shape[1], y.shape[:1] + y.shape[2:])


def export(model, x, exporter, path):
    """Writes the forward model in training form, as the exporter likes it."""
    quiet = (contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()))
    with warnings.catch_warnings(), quiet[0], quiet[1]:
        warnings.simplefilter("ignore")
        if exporter == "folded":
            torch.onnx.export(
                model, (x,), str(path), dynamo=False, opset_version=17, input_names=["x"], output_names=["y"],
                dynamic_axes={"x": {0: "batch"}},
            )
        elif exporter == "script":
            torch.onnx.export(
                model, (x,), str(path), dynamo=False, opset_version=17, do_constant_folding=False,
                training=torch.onnx.TrainingMode.TRAINING, input_names=["x"], output_names=["y"],
                dynamic_axes={"x": {0: "batch"}},
            )
        else:
            program = torch.onnx.export(
                model, (x,), dynamo=True, opset_version=18, optimize=False, input_names=["x"], output_names=["y"],
                dynamic_shapes=({0: torch.export.Dim("batch")},), external_data=False,
            )
            program.save(str(path), external_data=False)


def onnx_names(path, model):
    """Name in the file, and whether it is transposed there, of each parameter; exporters rename what they fold."""
    tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load(str(path)).graph.initializer}
    names = {}
    for name, value in model.named_parameters():
        value = value.detach().numpy()
        candidates = [name] if name in tensors else [n for n in tensors if n.startswith("onnx::")]
        same = [(n, False) for n in candidates if np.array_equal(tensors[n], value)]
        turned = [(n, True) for n in candidates if value.ndim == 2 and np.array_equal(tensors[n], value.T)]
        if not same + turned:
            raise ValueError(f"{name} is not in the file")
        names[name] = (same + turned)[0]
    return names


def gradients(model, x, label):
    model.zero_grad()
    loss = loss_of(model(x), label)
    loss.backward()
    return loss.item(), {n: p.grad.detach().clone() for n, p in model.named_parameters()}


def perturbed(build):
    """No two weights are equal: an exporter that folds constants makes equal ones (fresh norms) one."""
    model = build().train()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p += 0.1 * torch.randn_like(p)
    return model


def expect(name, exporter, out):
    build, feed, rate = MODELS[name]
    torch.manual_seed(sum(name.encode()))
    model = build().train()
    x = feed(BATCH)
    label = labels_for(model(x))
    torch.manual_seed(7)
    model = perturbed(build)
    state = {n: v.clone() for n, v in model.state_dict().items()}
    path = out / f"{name}.{exporter}.onnx"
    export(model, x, exporter, path)
    # An export in training form has run the model, and moved its running statistics.
    kept = {t.name: numpy_helper.to_array(t) for t in onnx.load(str(path)).graph.initializer}
    state |= {n: torch.tensor(kept[n]) for n in state if "running" in n and n in kept}
    model.load_state_dict(state)
    names = onnx_names(path, model)

    single = build().train()
    single.load_state_dict(state)
    _, rough = gradients(single, x, label)
    double = build().train().double()
    double.load_state_dict(state)
    wide = x.double() if x.is_floating_point() else x
    losses, exact, statistics = [], {}, {}
    for step in range(STEPS):
        loss, grads = gradients(double, wide, label)
        losses.append(loss)
        if step == 0:
            exact = grads
            statistics = {n: v.clone() for n, v in double.named_buffers() if "running" in n}
        with torch.no_grad():
            for n, p in double.named_parameters():
                p -= rate * grads[n]

    order = sorted(names, key=lambda n: names[n][0])
    # A gradient far below the others is zero up to rounding, as that of a bias before a normalization.
    floor = 1e-4 * max(float(g.abs().max()) for g in exact.values())
    error = [float((rough[n].double() - exact[n]).abs().max()) / max(float(exact[n].abs().max()), floor) for n in order]
    tensors = {"input.x": x.numpy(), "label": label.numpy()}
    turn = {n: exact[n].t() if names[n][1] else exact[n] for n in order}
    tensors |= {f"grad.{names[n][0]}": turn[n].float().numpy() for n in order}
    tensors |= {f"new.{n}": v.float().numpy() for n, v in statistics.items()}
    tensors |= {
        "losses": np.array(losses),
        "f32_error": np.array(error),
        "rate": np.array([rate]),
    }
    meta = {"loss": "softmax-cross-entropy", "exporter": exporter, "parameters": " ".join(names[n][0] for n in order)}
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, str(out / f"{name}.{exporter}.safetensors"), meta)
    count = sum(p.numel() for p in model.parameters())
    print(f"{name}.{exporter}: {count} parameters, loss {losses[0]:.4f} -> {losses[-1]:.4f}, f32 error {max(error):.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name in args.models or MODELS:
        for exporter in ("script", "dynamo") + (("folded",) if name in FOLDED else ()):
            try:
                expect(name, exporter, args.out)
            except Exception as error:  # An exporter that cannot export a model is worth a line, not the end.
                (args.out / f"{name}.{exporter}.onnx").unlink(missing_ok=True)
                print(f"{name}.{exporter}: not exported: {type(error).__name__}: {str(error).splitlines()[0][:150]}")


if __name__ == "__main__":
    main()
