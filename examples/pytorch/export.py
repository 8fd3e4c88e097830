"""Exports the module as it trains, with the names of what is trained."""

import onnx
import torch
from net import Digits

torch.manual_seed(0)
model = Digits().train()
torch.onnx.export(
    model, (torch.zeros(2, 1, 8, 8),), "digits.onnx", dynamo=True, optimize=False, external_data=False,
    input_names=["x"], dynamic_shapes=({0: torch.export.Dim("batch")},),
)
file = onnx.load("digits.onnx")
names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
onnx.helper.set_model_props(file, {"syncline.trainable": "\n".join(names)})
onnx.save(file, "digits.onnx")
