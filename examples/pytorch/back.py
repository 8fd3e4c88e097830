"""Loads what was trained into the module, and tests it."""

import torch
from net import Digits
from safetensors.torch import load_file, load_model

model = Digits()
load_model(model, "trained.safetensors")
model.eval()

data = load_file("digits.safetensors")
images, labels = data["x"][::5], data["label"][::5]  # test_every = 5
with torch.no_grad():
    scores = model(images)
loss = torch.nn.functional.cross_entropy(scores, labels)
accuracy = (scores.argmax(1) == labels).float().mean()
print(f"test loss {loss:.6f}, accuracy {accuracy:.2%}")
