"""Writes the data as named arrays."""

import numpy
import torch
from safetensors.torch import save_file

rows = torch.from_numpy(numpy.loadtxt("../data/digits.csv.gz", delimiter=",", dtype="float32"))
images, labels = rows[:, :64].reshape(-1, 1, 8, 8) / 16, rows[:, 64].long()
save_file({"x": images, "label": labels}, "digits.safetensors")
