"""Writes the weights of the module, to begin a training with them."""

from net import Digits
from safetensors.torch import load_file, save_file

model = Digits()
model.load_state_dict(load_file("trained.safetensors"), strict=False)
# ... trains a while in PyTorch ...
state = model.state_dict()
save_file({name: state[name] for name in state if "num_batches" not in name}, "pretrained.safetensors")
