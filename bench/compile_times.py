#!/usr/bin/env python3
"""What it takes to compile each kernel of examples/kernels, from its text to CPU code or to PTX, with nothing on the disk. One table.

    bench/compile_times.py [--library libtenon.so] [--turns 7] [--machine sm_90a --machine host] [NAME ...]
    bench/compile_times.py --llvm NAME      and LLVM's own report of its passes (a library that LLVM is linked to, not in)

NAME is the start of a kernel's name. Milliseconds of a process that has compiled before, the least of all turns: the thread's processor time, then by the clock the front end (text to
Tile IR), lowering (passes on the Tile IR, to the Loop IR, its passes), LLVM (emission, its passes, code generation) and linking; lines of the Loop IR and of the code. Exits
with 1 if one is above its goal."""
import argparse
import ctypes
import importlib
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOALS = {"host": 30, "sm_90a": 60}

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--library", default=str(ROOT / "build/release/libtenon.so"))
parser.add_argument("--turns", type=int, default=7)
parser.add_argument("--machine", action="append")
parser.add_argument("--llvm", action="store_true")
parser.add_argument("name", nargs="*")
options = parser.parse_args()
os.environ.update(TENON_LIBRARY=options.library, TENON_CACHE="", TENON_PTXAS="")
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples/kernels")]
import numpy as np  # noqa: E402

f16, f32, i32, i64 = (np.zeros(64, t) for t in (np.float16, np.float32, np.int32, np.int64))


def blocks(m, n, k=None, warps=4, stages=3, **rest):
    return {"BLOCK_M": m, "BLOCK_N": n, **({"BLOCK_K": k} if k else {}), "num_warps": warps, "num_stages": stages, **rest}


def cases(gpu):
    """(name, module, kernel, arguments, options): on a CPU the blocks of the example, on a GPU those it is measured with."""
    for block in (1024, 16384) if gpu else (1024, 4096):
        warps = max(4, block // 1024)
        yield f"fused_softmax_{block}", "softmax", "fused_softmax", (f32, f32, 781), dict(BLOCK=block, num_warps=warps)
        yield f"softmax_rows_{block}", "softmax", "softmax_rows", (f32, f32, 781, 781, 64, 781), dict(BLOCK=block, num_stages=2, num_warps=warps)
    yield "vector_add", "vector_add", "vector_add", (f32, f32, f32, 98437), dict(BLOCK=1024)
    yield "dropout", "dropout", "dropout_kernel", (f32, f32, 10007, 0.35, 123), dict(BLOCK=1024)
    yield "asin", "libdevice", "asin_kernel", (f32, f32, 98437), dict(BLOCK=1024)
    yield "layer_norm_forward", "layer_norm", "forward", (f32, f32, f32, f32, f32, f32, 1000, 1000, 1e-5), dict(BLOCK=1024 if gpu else 256)
    for block in (1024,) if gpu else (512, 1024):
        yield f"layer_norm_x_{block}", "layer_norm", "backward_x", (f32, f32, f32, f32, f32, f32, f32, f32, i32, 1000, 1000), dict(GROUPS=4, BLOCK=block)
    yield "layer_norm_wb", "layer_norm", "backward_wb", (f32, f32, f32, f32, 64, 1000), dict(BLOCK_M=32, BLOCK_N=128)
    for x in (f16,) if gpu else (f32, f16):
        for m, n, k, stages, warps in ((128, 256, 64, 3, 8), (64, 256, 32, 4, 4), (128, 128, 64, 4, 4), (64, 128, 32, 4, 4), (32, 64, 32, 5, 2)):
            yield (f"matmul_{m}x{n}x{k}_{x.dtype}", "matmul", "matmul_kernel", (x, x, x, 512, 512, 512, 512, 1, 512, 1, 512, 1),
                   blocks(m, n, k, warps, stages, GROUP=8, ACTIVATION="leaky_relu"))
    for m, n, k, warps in ((128, 256, 64, 8), (128, 128, 64, 8)) if gpu else ((64, 32, 32, 4),):
        given = blocks(m, n, k, warps, GROUP=8, PROGRAMS=132)
        yield f"persistent_pointers_{m}x{n}", "persistent_matmul", "with_pointers", (f16, f16, f16, 512, 512, 512, 512, 512, 512), given
        for halves in (False, True):
            yield (f"persistent_descriptors_{m}x{n}{'_halves' * halves}", "persistent_matmul", "with_descriptors", (f16, f16, f16, 512, 512, 512),
                   dict(given, HALVES=halves))
        yield (f"grouped_{m}x{n}", "grouped_gemm", "grouped_kernel", (i64, i64, i64, i32, i32, 4), {key: v for key, v in given.items() if key != "GROUP"})
    x, shapes = (f16, ((128, 128, 64, 8), (128, 128, 128, 8))) if gpu else (f32, ((32, 16, 64, 4), (64, 32, 64, 4)))
    for m, n, head, warps in shapes:
        for causal in (False, True):
            given, name = blocks(m, n, None, warps, HEAD=head), f"{m}x{n}_{head}{'_causal' * causal}"
            yield f"attention_{name}", "attention", "forward", (x, x, x, x, f32, 0.1, 4096), dict(given, CAUSAL=causal)
            if not causal:
                yield f"attention_blocks_{name}", "attention", "forward_block_pointers", (x, x, x, x, 0.1, 4096), given
            back = blocks(64, n, None, warps, HEAD=head, CAUSAL=causal) if gpu else dict(given, CAUSAL=causal)
            yield f"attention_kv_{name}", "attention", "backward_kv", (x, x, x, x, x, x, f32, f32, 0.1, 4096), back
            yield f"attention_q_{name}", "attention", "backward_q", (x, x, x, x, x, f32, f32, 0.1, 4096), dict(given, CAUSAL=causal)
        yield f"attention_delta_{m}_{head}", "attention", "backward_delta", (x, x, f32, 4096), dict(BLOCK=m, HEAD=head)


def plain(kernel):
    """Without the configurations that autotune would try."""
    while hasattr(kernel, "fn") and hasattr(kernel.fn, "warmup"):
        kernel = kernel.fn
    return kernel


def compile_one(module, kernel, given, named, machine):
    function = plain(getattr(importlib.import_module(module), kernel))
    function._kernels.clear()
    start = time.thread_time()
    return function.warmup(*given, machine=machine, grid=(1,), **named), (time.thread_time() - start) * 1e3


def measure(case, machine):
    name, *case = case
    turns = []
    for _ in range(options.turns):
        compiled, total = compile_one(*case, machine)
        turns.append([total, *(1e3 * s for s in compiled.phase_seconds)])
    total, *parts = map(min, zip(*turns))
    lines = [compiled.asm[stage].count("\n") for stage in ("loop", "ptx" if machine.startswith("sm_") else "asm")]
    met = total <= GOALS.get(machine, 60)
    print(f"{name:42} {machine:7} {total:7.1f}  " + " ".join(f"{p:6.1f}" for p in parts) + f"  {lines[0]:6} {lines[1]:6} {'' if met else '  above its goal'}", flush=True)
    return met


def main():
    if options.llvm:
        llvm = ctypes.CDLL("libLLVM.so.19.1", mode=ctypes.RTLD_GLOBAL)
        words = (ctypes.c_char_p * 2)(b"tenon", b"-time-passes")
        llvm.LLVMParseCommandLineOptions(2, words, None)
    print(f"{'kernel':42} {'machine':7} {'ms':>7}  {'front':>6} {'lower':>6} {'LLVM':>6} {'link':>6}  {'loop':>6} {'code':>6}")
    good = True
    for machine in options.machine or GOALS:
        compile_one("vector_add", "vector_add", (f32, f32, f32, 64), dict(BLOCK=64), machine)
        for case in cases(machine.startswith("sm_")):
            if not options.name or any(case[0].startswith(n) for n in options.name):
                good &= measure(case, machine)
    if options.llvm:
        llvm.LLVMShutdown()  # prints what code generation took, of all turns
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
