"""What PyTorch reaches with the same model: bare loops that run at the same time, then DistributedDataParallel over gloo.

Takes the folder in which the workers meet, and reads one JSON object in a line of stdin: model, batch, slow (how many times
slower each worker is), seconds. It ends when stdin does. Prints one JSON object: torch, bare_samples_per_s, ddp_samples_per_s.
"""

import json
import os
import statistics
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WARM_STEPS = 8
CLASSES = 10
LEARNING_RATE = 0.01


class Block(nn.Module):
    """Two convolutions and a way around them, one of one pixel where the shape changes (He et al., option B)."""

    def __init__(self, into, out, stride):
        super().__init__()
        self.first = convolution(into, out, 3, stride)
        self.second = convolution(out, out, 3, 1)
        self.beside = nn.Identity() if into == out else convolution(into, out, 1, stride)

    def forward(self, x):
        inner = self.second(torch.relu(self.first(x)))
        return torch.relu(inner + self.beside(x))


def convolution(into, out, side, stride):
    layer = nn.Conv2d(into, out, side, stride, padding=side // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(out))


def resnet20():
    layers, channels = [convolution(3, 16, 3, 1), nn.ReLU()], 16
    for out, stride in [(16, 1)] * 3 + [(32, 2), (32, 1), (32, 1), (64, 2), (64, 1), (64, 1)]:
        layers.append(Block(channels, out, stride))
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, CLASSES))


MODELS = {"mlp": (mlp, (784,)), "resnet20": (resnet20, (3, 32, 32))}


class Loop:
    """Training steps on a random batch, each followed by sleep where the worker is a slow one."""

    def __init__(self, model, shape, batch):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        self.loss = nn.CrossEntropyLoss()
        self.samples, self.labels = torch.rand(batch, *shape), torch.randint(CLASSES, (batch,))
        self.sleep_s = 0.0

    def step(self):
        self.optimizer.zero_grad()
        self.loss(self.model(self.samples), self.labels).backward()
        self.optimizer.step()
        time.sleep(self.sleep_s)

    def step_s(self):
        """Median time of a step, once it is warm."""
        times = []
        for _ in range(2 * WARM_STEPS):
            since = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - since)
        return statistics.median(times[WARM_STEPS:])


def worker(rank, order, measured):
    workers, batch, slow = len(order["slow"]), order["batch"], order["slow"][rank]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meet", rank=rank, world_size=workers)
    make, shape = MODELS[order["model"]]
    loop = Loop(make(), shape, batch)
    dist.barrier()
    # By its own compute, as Syncline's workers and bare loops are.
    loop.sleep_s = (slow - 1.0) * loop.step_s()
    dist.barrier()
    steps, since = 0, time.perf_counter()
    while time.perf_counter() - since < order["seconds"]:
        loop.step()
        steps += 1
    bare = torch.tensor([steps * batch / (time.perf_counter() - since)], dtype=torch.float64)
    dist.all_reduce(bare)

    loop = together(loop)
    step_s = torch.tensor([loop.step_s()], dtype=torch.float64)
    dist.all_reduce(step_s, dist.ReduceOp.MAX)
    # Every worker takes as many steps, or the others would wait forever.
    steps = max(1, round(order["seconds"] / step_s.item()))
    dist.barrier()
    since = time.perf_counter()
    for _ in range(steps):
        loop.step()
    dist.barrier()
    if rank == 0:
        rate = steps * batch * workers / (time.perf_counter() - since)
        measured.put({"torch": torch.__version__, "bare_samples_per_s": bare.item(), "ddp_samples_per_s": rate})
    dist.destroy_process_group()


def together(loop):
    """The same loop with gradients averaged over all workers."""
    model = DistributedDataParallel(loop.model)
    with_all = Loop(model, loop.samples.shape[1:], len(loop.labels))
    with_all.sleep_s = loop.sleep_s
    return with_all


def end_with_stdin():
    sys.stdin.read()
    # The workers end with this process.
    os._exit(1)


def main():
    os.chdir(sys.argv[1])
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_stdin, daemon=True).start()
    measured = processes.get_context("spawn").SimpleQueue()
    processes.spawn(worker, (order, measured), nprocs=len(order["slow"]))
    print(json.dumps(measured.get()))


if __name__ == "__main__":
    main()
