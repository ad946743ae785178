"""Whole networks on an NVIDIA GPU, bf16, against PyTorch on the same weights and inputs: right first, then times in strict turns. One table.

    python3 bench/gpu/run.py [--library libtenon.so] [--peer reduce-overhead] [--profile FILE] [--seconds S] [NAME ...]

Needs the library, PyTorch and the driver; the package onnx only to make build/bench/gpu/*.onnx, if they are not there. Without --peer Tenon is timed beside eager
PyTorch alone, which compiles nothing. A result is right if it is no further from PyTorch's in f32 than twice what PyTorch's own in bf16 is. Exits with 1 if one is not."""
import argparse
import ctypes
import os
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "tests" / "gpu")]
from common import error, every  # noqa: E402
import models  # noqa: E402
import networks  # noqa: E402
import torch  # noqa: E402

import peers  # noqa: E402
from timing import milliseconds  # noqa: E402


def turns(runs, seconds, rounds=9):
    each = [milliseconds(run, 3) for run in runs]
    times = [max(1, int(seconds * 1e3 / rounds / len(runs) / ms)) for ms in each]
    table = [[milliseconds(run, n) for run, n in zip(runs, times)] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*table)]


def compiled(peer, arguments, mode):
    """The peer compiled, and the seconds of its first two calls with nothing kept on the disk."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    torch._dynamo.reset()
    start = time.perf_counter()
    run = torch.compile(peer, mode=mode)
    for _ in range(2):
        run(*arguments)
    torch.cuda.synchronize()
    return run, time.perf_counter() - start


def one(library, network, options):
    torch.cuda.empty_cache()
    inputs = peers.inputs(network, "cuda")
    arguments = list(inputs.values())
    os.environ["TENON_CACHE"] = tempfile.mkdtemp()  # nothing is compiled already
    with torch.no_grad():
        peer = peers.peer(network, "cuda")
        own = peer(*arguments)
        wide = peer.float()(*[a.float() if a.is_floating_point() else a for a in arguments])
        scale = [error(a, b) for a, b in zip(own, wide)]
        outputs = [torch.full_like(o, float("nan"), memory_format=torch.contiguous_format) for o in own]
        start = time.perf_counter()
        net = library.load(models.file(network), 0, inputs, machine="cuda", outputs=outputs)
        cold = time.perf_counter() - start
        torch.cuda.synchronize()
        errors = [error(a, b) for a, b in zip(outputs, wide)]
        del wide
        peer.bfloat16()
        wrong = [f"output {i}: {e:.2e}, PyTorch's {s:.2e}" for i, (e, s) in enumerate(zip(errors, scale)) if not e <= 2 * s + 1e-3]
        net.check(net.c.tn_context_set_stream(net.context, ctypes.c_void_p(1)))
        runs = [net.run, lambda: peer(*arguments)]
        seconds = None
        if options.peer:
            run, seconds = compiled(peer, arguments, options.peer)
            runs.append(lambda: run(*arguments))
        for _ in range(4):
            net.run()
        medians = turns(runs, options.seconds)
        info = net.info()
        parts = " ".join(f"{name[:-8]} {getattr(info, name):.2f}" for name in ("graph_seconds", "fuse_seconds", "lower_seconds", "emit_seconds", "link_seconds", "load_seconds"))
        line = f"{network.name:18} {medians[0]:8.3f} ms  eager {medians[1]:8.3f} ms"
        if options.peer:
            line += f"  {options.peer} {medians[2]:8.3f} ms ({medians[2] / medians[0]:.2f}x, compiled in {seconds:.1f} s)"
        print(f"{line}  compiled in {cold:.2f} s (import {net.import_ms / 1e3:.2f} {parts}) kernels {info.kernel_steps}/{info.kernels}  "
              f"error {max(errors):.2e} (PyTorch's {max(scale):.2e}){'  WRONG ' + '; '.join(wrong) if wrong else ''}", flush=True)
        if options.profile:
            with open(options.profile, "a") as out:
                rows = net.profile(5)
                print(f"== {network.name}: {sum(r[2] for r in rows) * 1e3:.3f} ms in {len(rows)} kernels", file=out)
                for kernel, nodes, least, size, programs, threads in rows:
                    print(f"{least * 1e6:9.1f} us {size / max(least, 1e-9) / 1e9:7.0f} GB/s {programs:7} x {threads:4}  {kernel:28} {nodes[:140]}", file=out)
        net.close()
    return not wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--library", default=os.environ.get("TENON_LIBRARY", "build/release/libtenon.so"))
    parser.add_argument("--peer", metavar="MODE")
    parser.add_argument("--profile", metavar="FILE")
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    library = networks.Library(options.library)
    return every(models.NETWORKS, lambda network: not options.names or network.name in options.names, lambda network: one(library, network, options))


if __name__ == "__main__":
    sys.exit(main())
