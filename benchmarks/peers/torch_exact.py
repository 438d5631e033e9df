"""A loss of PyTorch's over all classes, forward and backward, in milliseconds.

    PYTHON torch_exact.py CLASSES KIND REPEATS

PYTHON has PyTorch 2.13 or later. KIND is "plain", or "chunked": then the logits
of all classes are never held (`LinearCrossEntropyOptions`).
"""

import json
import statistics
import sys
import time

import torch
from torch.nn.modules import linear_cross_entropy_options as lib

BATCH, DIM = 256, 128


def peak_gb():
    # `ru_maxrss` is never below that of the process that started this one.
    with open("/proc/self/status") as f:
        return float(f.read().split("VmHWM:")[1].split()[0]) / 1e6


def main(classes, kind, repeats):
    before = peak_gb()
    options = lib.LinearCrossEntropyOptions() if kind == "chunked" else None
    loss = torch.nn.LinearCrossEntropyLoss(DIM, classes, options=options)
    torch.nn.init.normal_(loss.linear.weight)
    x = (0.05 * torch.randn(BATCH, DIM)).requires_grad_()
    labels = torch.randint(classes, (BATCH,))
    times = []
    for _ in range(repeats + 2):
        x.grad = None
        loss.zero_grad(set_to_none=True)
        start = time.perf_counter()
        loss(x, labels).backward()
        times.append(1e3 * (time.perf_counter() - start))
    found = {"ms": statistics.median(times[2:]), "gb": peak_gb() - before}
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
