"""Writes a PyTorch model as the examples keep it: `NAME.onnx.gz`, with initial weights that pack well."""

import contextlib
import gzip
import io
import pathlib
import warnings

import onnx
import torch

# Bits of a float32 that are kept of its 23-bit fraction: initial weights are random anyway, and rounded to within 6 %
# they take a quarter of the room in a repository. `--exact` keeps all of them.
FRACTION = 3


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    """The nearest number with a short fraction."""
    drop = 23 - FRACTION
    bits = tensor.contiguous().view(torch.int32) + (1 << (drop - 1))
    return (bits & ~((1 << drop) - 1)).view(torch.float32)


def arguments(parser):
    """Flags that all exports have."""
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent, help="folder to write to")
    parser.add_argument("--seed", type=int, default=0, help="of the initial weights")
    parser.add_argument("--exact", action="store_true", help="do not round the initial weights")
    return parser


def export(model: torch.nn.Module, sample: torch.Tensor, path: pathlib.Path, exact: bool) -> None:
    """Exports in training form, with the names of the parameters that train. The first axis of input `x` is open."""
    if not exact:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(rounded(parameter))
    batch = {0: torch.export.Dim("batch")}
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with warnings.catch_warnings(), quiet[0], quiet[1]:
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model.train(), (sample,), dynamo=True, opset_version=18, optimize=False, input_names=["x"],
            output_names=["y"], dynamic_shapes=(batch,), external_data=False,
        )
    proto = program.model_proto
    for node in proto.graph.node:  # Where in the Python source each node came from: paths of this machine.
        del node.metadata_props[:]
        node.doc_string = ""
    del proto.graph.value_info[:], proto.functions[:], proto.metadata_props[:]
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    onnx.helper.set_model_props(proto, {"syncline.trainable": "\n".join(names)})
    packed = gzip.compress(proto.SerializeToString(), 9, mtime=0)
    path.write_bytes(packed)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{path}: {count} parameters, {len(packed)} bytes")
