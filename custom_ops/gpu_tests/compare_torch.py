"""Times of torch, where it is installed, for the work of our CUDA kernels.

`python custom_ops/gpu_tests/compare_torch.py` prints a Markdown table and, in
the last line, JSON with the measured rate of matrix products, which
`gpu_tests --tflops` takes, and milliseconds by the names of our kernels.
"""

import json
import sys

CLASSES, BATCH, DIM, BLOCK, TOP_K = 1_000_000, 4096, 128, 65_536, 128
GB = 1e9


def main():
    try:
        import torch
    except ImportError:
        sys.exit(not_compared("torch is not installed"))
    if not torch.cuda.is_available():
        sys.exit(not_compared("torch finds no GPU"))
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| torch | ms | peak memory, GB | rate |\n| --- | --- | --- | --- |")
    figures = {"device": torch.cuda.get_device_name()}
    figures["tflops"] = report_product(torch)
    figures["copy_gb_s"] = report_copy(torch)
    for name, run in (
        ("cross_entropy", cross_entropy),
        ("training_step", training_step),
        ("top_k", top_k),
    ):
        figures[name] = report_largest(torch, run)
    figures["kernels"] = report_blocks(torch)
    print(json.dumps(figures))


def not_compared(reason):
    """Prints the reason; nothing to compare with is no failure."""
    print(f"not compared: {reason}")
    return 0


def median_ms(torch, run, repeats=10):
    """Median time of `run` by events, after three runs to warm up."""
    times = []
    for repeat in range(repeats + 3):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        if repeat >= 3:
            times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def line(what, ms, gigabytes=None, rate=""):
    peak = "" if gigabytes is None else f"{gigabytes:.2f}"
    print(f"| {what} | {ms:.3f} | {peak} | {rate} |", flush=True)


def report_product(torch, size=8192):
    a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    ms = median_ms(torch, lambda: a @ b)
    tflops = 2 * size**3 / ms / 1e9
    line(f"bf16 product of {size}^3", ms, rate=f"{tflops:.0f} TFLOP/s")
    return tflops


def report_copy(torch, size=4 << 30):
    source = torch.empty(size, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    ms = median_ms(torch, lambda: target.copy_(source))
    rate = 2 * size / ms / 1e6
    line("copy of 4 GiB", ms, rate=f"{rate:.0f} GB/s read and written")
    return rate


def report_blocks(torch):
    """What is done with a block of logits: milliseconds, by kernel."""
    logits = torch.randn(BATCH, BLOCK, device="cuda")
    size = f"{BATCH:,} x {BLOCK:,} logits"
    jobs = {
        f"stats of {size}": lambda: torch.logsumexp(logits, dim=1),
        f"top {TOP_K} of {size}, the first block": lambda: torch.topk(
            logits, TOP_K
        ),
        f"gradient of {size}, in place": lambda: torch.softmax(
            logits, dim=1, out=logits
        ),
    }
    found = {what: median_ms(torch, run) for what, run in jobs.items()}
    for what, ms in found.items():
        line(what, ms)
    return found


def report_largest(torch, prepare):
    """Times `prepare(batch)` at the greatest batch that fits, halving."""
    batch = BATCH
    while batch:
        try:
            return report_one(torch, prepare, batch)
        except torch.cuda.OutOfMemoryError:
            print(f"| {prepare.__name__}, batch {batch} | out of memory | | |")
        # Outside of the handler, which keeps the tensors of its traceback.
        torch.cuda.empty_cache()
        batch //= 2
    return None


def report_one(torch, prepare, batch):
    run, what = prepare(torch, batch)
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    ms = median_ms(torch, run)
    peak = torch.cuda.max_memory_allocated()
    line(
        what,
        ms,
        peak / GB,
        f"{(peak - before) / GB:.2f} GB above what lay there before",
    )
    return {
        "ms": ms,
        "batch": batch,
        "peak_gb": peak / GB,
        "temporary_gb": (peak - before) / GB,
    }


def inputs(torch, batch, grad=True):
    features = torch.randn(batch, DIM, device="cuda", dtype=torch.bfloat16)
    rows = 0.1 * torch.randn(CLASSES, DIM, device="cuda")
    labels = torch.randint(CLASSES, (batch,), device="cuda")
    features.requires_grad_(grad)
    return features, rows.bfloat16().requires_grad_(grad), labels


def size_of(batch):
    return f"{batch:,} x {CLASSES:,} x {DIM}, bf16"


def cross_entropy(torch, batch):
    """Full softmax cross-entropy, forward and backward."""
    features, rows, labels = inputs(torch, batch)

    def run():
        features.grad = rows.grad = None
        logits = features @ rows.T
        torch.nn.functional.cross_entropy(logits, labels).backward()

    return run, f"cross-entropy, forward and backward, {size_of(batch)}"


def training_step(torch, batch):
    """The same with bf16 products and float32 rows, and fused Adam."""
    features, rows, labels = inputs(torch, batch)
    rows = rows.detach().float().requires_grad_(True)
    optimizer = torch.optim.Adam([rows], lr=1e-3, fused=True)

    def run():
        features.grad = None
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = features @ rows.T
            loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()

    return run, (f"training step, fused Adam on float32 rows, {size_of(batch)}")


def top_k(torch, batch):
    """Top classes of each example: products of blocks of rows, merged."""
    features, rows, _ = inputs(torch, batch, grad=False)

    def run():
        scores = ids = None
        for start in range(0, CLASSES, BLOCK):
            logits = features @ rows[start : start + BLOCK].T
            new_scores, new_ids = torch.topk(logits.float(), TOP_K)
            new_ids = new_ids + start
            if scores is not None:
                new_scores = torch.cat([scores, new_scores], dim=1)
                new_ids = torch.cat([ids, new_ids], dim=1)
                new_scores, best = torch.topk(new_scores, TOP_K)
                new_ids = torch.gather(new_ids, 1, best)
            scores, ids = new_scores, new_ids

    return run, f"top {TOP_K} by blocks of {BLOCK:,}, {size_of(batch)}"


if __name__ == "__main__":
    main()
