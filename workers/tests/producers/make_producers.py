"""Exports a tiny model with each tool that writes ONNX files, for tests/producers.rs.

    python3 -m pip install scikit-learn skl2onnx                        && python3 make_producers.py sklearn
    python3 -m pip install tensorflow-cpu tf2onnx                       && python3 make_producers.py keras
    python3 -m pip install keras torch onnx onnxscript                  && python3 make_producers.py keras_torch
    python3 -m pip install torch onnx onnxscript                        && python3 make_producers.py torch

Files land beside this script. Weights are random numbers: tf2onnx leaves biases of zero and fresh BatchNormalizations out
of the file, so that nobody could train them. No file holds expectations: the test compares gradients with differences and
losses with the model's own probabilities.

`torch_joint.onnx` is PyTorch's own training graph: a function that returns loss, weight and gradients, traced by make_fx
and exported with the names that a ready-made training graph has. The same works for any module whose backward pass has
ONNX operators; convolutions have none.
"""

import pathlib
import sys
import warnings

warnings.simplefilter("ignore")
HERE = pathlib.Path(__file__).parent


def sklearn():
    import numpy as np
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    three = (x[:, 0] + x[:, 1] > 0).astype(int) + (x[:, 2] > 0.5)
    mlp = {"hidden_layer_sizes": (6,), "max_iter": 20, "random_state": 0}
    models = {
        "sklearn_mlp": (MLPClassifier(**mlp), three),
        "sklearn_pipeline": (make_pipeline(StandardScaler(), MLPClassifier(**mlp)), three),
        "sklearn_binary": (MLPClassifier(**mlp), three > 0),
        "sklearn_regressor": (MLPRegressor(**mlp), x[:, 0] * x[:, 1]),
        "sklearn_logistic": (LogisticRegression(), three),
    }
    for name, (model, y) in models.items():
        model.fit(x, y)
        # The pipeline keeps its ZipMap, the others give an array of probabilities.
        options = {} if name in ("sklearn_pipeline", "sklearn_regressor") else {id(model): {"zipmap": False}}
        save(name, to_onnx(model, x[:1], target_opset=18, options=options))


def keras():
    import os

    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    import keras
    import numpy as np
    import onnx
    import tensorflow as tf
    import tf2onnx

    layers = keras.layers
    ids = keras.Input((5,), dtype="int64")
    embedded = layers.Embedding(9, 8)(ids)
    mixed = layers.LayerNormalization()(embedded + layers.MultiHeadAttention(2, 4)(embedded, embedded))
    pooled = layers.GlobalAveragePooling1D()(layers.Dense(8, "relu")(mixed))
    models = {
        "keras_mlp": keras.Sequential(
            [keras.Input((6,)), layers.Dense(8, "relu"), layers.Dropout(0.2), layers.Dense(3, "softmax")]
        ),
        "keras_conv": keras.Sequential(
            [
                keras.Input((8, 8, 2)),
                layers.Conv2D(4, 3, padding="same"),
                layers.MaxPooling2D(),
                layers.DepthwiseConv2D(3, padding="same"),
                layers.Conv2D(4, 3, strides=2, padding="same", activation="elu"),
                layers.Conv2DTranspose(3, 3, strides=2, padding="same"),
                layers.UpSampling2D(2, interpolation="bilinear"),
                layers.AveragePooling2D(4),
                layers.Flatten(),
                layers.Dense(3),
            ]
        ),
        "keras_attention": keras.Model(ids, layers.Dense(3)(pooled)),
        "keras_gelu": keras.Sequential([keras.Input((6,)), layers.Dense(8, "gelu"), layers.Dense(3)]),
        "keras_lstm": keras.Sequential([keras.Input((5, 3)), layers.LSTM(4), layers.Dense(3)]),
    }
    rng = np.random.default_rng(0)
    for name, model in models.items():
        model.set_weights([rng.normal(scale=0.4, size=w.shape).astype(w.dtype) for w in model.get_weights()])
        signature = [tf.TensorSpec((None, *i.shape[1:]), i.dtype, name=f"x{n}") for n, i in enumerate(model.inputs)]
        call = tf.function(lambda x, model=model: model(x, training=False), input_signature=signature)
        save(name, tf2onnx.convert.from_function(call, input_signature=signature, opset=17)[0])
    # Keras's own way, which goes through tf2onnx as well and names things differently.
    model = models["keras_mlp"]
    model(np.zeros((2, 6), np.float32))
    model.export(str(HERE / "keras_export.onnx"), format="onnx", verbose=False, opset_version=18)
    save("keras_export", onnx.load(HERE / "keras_export.onnx"))


def keras_torch():
    """Keras with PyTorch as its backend: nothing in the file has a name."""
    import os

    os.environ.update(KERAS_BACKEND="torch")
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.DepthwiseConv2D(2),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(5, "tanh"),
            layers.Dense(3),
        ]
    )
    rng = np.random.default_rng(1)
    # Equal biases would be one constant.
    model.set_weights([w + rng.uniform(0.1, 0.2, w.shape).astype(w.dtype) for w in model.get_weights()])
    model(np.zeros((2, 6, 6, 2), np.float32))
    model.export(str(HERE / "keras_torch.onnx"), format="onnx", verbose=False)


def torch():
    import contextlib
    import io

    import onnx
    import onnxscript
    import torch
    import torch.nn.functional as F
    from onnx import numpy_helper
    from onnxscript import opset18 as op
    from torch import nn
    from torch._decomp import core_aten_decompositions
    from torch.func import functional_call
    from torch.fx.experimental.proxy_tensor import make_fx

    torch.manual_seed(0)

    class Shapes(nn.Module):
        """What the older exporter writes with sizes that are computed when the model runs."""

        def __init__(self):
            super().__init__()
            self.a, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4)
            self.b, self.other = nn.Conv2d(4, 4, 3, stride=2), nn.GroupNorm(4, 4)

        def forward(self, x):
            x = F.silu(self.norm(self.a(x)))
            x = F.avg_pool2d(self.other(self.b(x)), 2)
            x = F.interpolate(x, size=(5, 3), mode="bilinear", align_corners=False)
            return x.reshape(x.shape[0], 4, -1).mean(2)[:, :3]

    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with quiet[0], quiet[1]:
        torch.onnx.export(
            Shapes(), (torch.randn(3, 2, 7, 7),), str(HERE / "torch_shapes.onnx"), dynamo=False, opset_version=17,
            do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING, input_names=["x"],
            output_names=["y"], dynamic_axes={"x": {0: "batch"}},
        )
    save("torch_shapes", onnx.load(HERE / "torch_shapes.onnx"))

    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 3))
    names = [name for name, _ in net.named_parameters()]

    def step(x, label, *params):
        y = functional_call(net, dict(zip(names, params)), (x,))
        loss = F.cross_entropy(y, label)
        weight = torch.ones_like(x[:, 0]).sum()
        return loss, weight, y, *torch.autograd.grad(loss, params)

    x, label = torch.randn(5, 4), torch.randint(0, 3, (5,))
    params = [p.detach().clone().requires_grad_() for p in net.parameters()]
    graph = make_fx(step, tracing_mode="symbolic", decomposition_table=core_aten_decompositions())(x, label, *params)

    class Joint(nn.Module):
        def __init__(self):
            super().__init__()
            self.graph = graph

        def forward(self, x, label, params):
            return self.graph(x, label, *params)

    batch, held = torch.export.Dim("batch"), [p.detach() for p in params]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        program = torch.onnx.export(
            Joint(), (x, label, held), dynamo=True, opset_version=18, verbose=False,
            input_names=["x", "label", *names],
            output_names=["loss", "loss_weight", "logits", *(f"{name}.grad" for name in names)],
            dynamic_shapes=({0: batch}, {0: batch}, [None] * len(names)),
        )
    model = program.model_proto
    # Initialisers of the same names are the values that training starts from.
    model.graph.initializer.extend(numpy_helper.from_array(p.numpy(), name) for name, p in zip(names, held))
    save("torch_joint", model)

    @onnxscript.script(default_opset=op)
    def scripted(x, w):
        half = op.Mul(op.MatMul(x, w), op.Constant(value_float=0.5))
        return op.Sub(op.Mish(half), op.ReduceMean(half, op.Constant(value_ints=[1])))

    float32 = onnxscript.FLOAT
    model = scripted.to_model_proto(input_types=[float32["batch", 4], float32[4, 3]], output_types=[float32["batch", 3]])
    # An input with a value of the same name is a weight.
    model.graph.initializer.append(numpy_helper.from_array(torch.randn(4, 3).numpy(), "w"))
    save("onnxscript", model)

    class Cells(nn.Module):
        """Recurrences step by step."""

        def __init__(self):
            super().__init__()
            self.long, self.short, self.head = nn.LSTMCell(3, 4), nn.GRUCell(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            h = c = last = x.new_zeros(x.shape[0], 4)
            for step in range(3):
                h, c = self.long(x[:, step], (h, c))
                last = self.short(h, last)
            return self.head(last)

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        torch.onnx.export(
            Cells(), (torch.randn(2, 3, 3),), str(HERE / "torch_cells.onnx"), dynamo=False, opset_version=17,
            do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING, input_names=["x"],
            output_names=["y"], dynamic_axes={"x": {0: "batch"}},
        )
    save("torch_cells", onnx.load(HERE / "torch_cells.onnx"))

    class Text(nn.Module):
        """A classifier of texts: two layers, both ways."""

        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(7, 3)
            self.lstm = nn.LSTM(3, 2, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            _, (h, _) = self.lstm(self.table(x))
            return self.head(torch.cat([h[-2], h[-1]], 1))

    class Forecast(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.rnn = nn.GRU(2, 3, batch_first=True), nn.RNN(3, 4, nonlinearity="relu", batch_first=True)
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            y, _ = self.gru(x)
            y, _ = self.rnn(y)
            return self.head(y[:, -1])

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        program = torch.onnx.export(
            Text().train(), (torch.randint(0, 7, (2, 4)),), dynamo=True, optimize=False, verbose=False,
            input_names=["x"], output_names=["y"], dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
        torch.onnx.export(
            Forecast(), (torch.randn(2, 5, 2),), str(HERE / "torch_gru.onnx"), dynamo=False, opset_version=17,
            do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING, input_names=["x"],
            output_names=["y"], dynamic_axes={"x": {0: "batch"}},
        )
    save("torch_lstm", program.model_proto)
    save("torch_gru", onnx.load(HERE / "torch_gru.onnx"))


def save(name, model):
    """Without what only people read: paths of the exporting machine are in there."""
    graph = model.graph
    del model.metadata_props[:], graph.metadata_props[:], graph.value_info[:]
    functions = [item for function in model.functions for item in (function, *function.node)]
    for item in [*graph.node, *graph.input, *graph.output, *graph.initializer, *functions]:
        del item.metadata_props[:]
        item.doc_string = ""
    graph.doc_string = model.doc_string = ""
    (HERE / f"{name}.onnx").write_bytes(model.SerializeToString())
    print(f"{name}: {len(model.SerializeToString())} bytes")


if __name__ == "__main__":
    {"sklearn": sklearn, "keras": keras, "keras_torch": keras_torch, "torch": torch}[sys.argv[1]]()
