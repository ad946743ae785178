"""Kernels on a GPU from Python. Where there is none: what is refused, what is compiled all the same, and launches on a fake one."""
import ctypes.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import fake_gpu
import tenon
import tenon.triton as triton
import tenon.triton.language as tl

FAKE = pathlib.Path(os.environ.get("TENON", "build/release/tenon")).resolve().parent / "unit/fake_cuda.so"
without = pytest.mark.skipif(bool(ctypes.util.find_library("cuda")), reason="there is a GPU")


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


@pytest.mark.skipif(not FAKE.is_file(), reason="tests are not built")
def test_on_a_fake():
    here = pathlib.Path(__file__).resolve().parent
    preload = f"{FAKE}:{os.environ['LD_PRELOAD']}" if os.environ.get("LD_PRELOAD") else str(FAKE)
    path = os.pathsep.join([str(here.parents[1] / "python"), str(here)])
    done = subprocess.run([sys.executable, here / "triton_fake_gpu.py"], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "LD_PRELOAD": preload, "PYTHONPATH": path, "TENON_PTXAS": "", "TENON_CACHE": ""})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_compiled_without_one(monkeypatch):
    kernel = double.warmup(np.zeros(64, np.float32), np.zeros(64, np.float32), 64, BLOCK=64, machine="sm_80", num_warps=2)
    assert ".target sm_80" in kernel.asm["ptx"] and ".reqntid 64" in kernel.asm["ptx"] and kernel.num_warps == 2 and kernel.machine == "sm_80"
    assert "threads 64" in kernel.asm["loop"]
    with pytest.raises(KeyError, match="sass"):
        kernel.asm["sass"]
    assert double.warmup(np.zeros(4, np.float32), np.zeros(4, np.float32), 4, BLOCK=4).gpu is None


@triton.jit
def clocks(out):
    tl.extra.cuda.gdc_wait()
    tl.store(out, tl.extra.cuda.globaltimer())
    tl.store(out + 1, tl.extra.cuda.globaltimer())
    tl.store(out + 2, tl.extra.cuda.smid())
    tl.extra.cuda.gdc_launch_dependents()


def test_special_registers():
    ptx = clocks.warmup(np.zeros(4, np.int64), machine="sm_80").asm["ptx"]
    assert ptx.count("%globaltimer") == 2 and "%smid" in ptx
    with pytest.raises(tenon.Error, match="compile for a GPU"):
        clocks.warmup(np.zeros(4, np.int64))


@triton.jit
def packed(x, out, BLOCK: tl.constexpr, PURE: tl.constexpr, PACK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    low, all = tl.inline_asm_elementwise("and.b32 $0, $2, 0x0f0f0f0f; mov.b32 $1, $2;", "=r,=r,r", [tl.load(x + at)], dtype=(tl.int8, tl.int8), is_pure=PURE, pack=PACK)
    tl.store(out + at, low + all)


def test_packed_assembly():
    x, out = np.zeros(128, np.int8), np.zeros(128, np.int8)
    kernel = packed.warmup(x, out, BLOCK=128, PURE=True, PACK=4, machine="sm_80")
    tile = kernel.asm["tile"]
    assert tile.count("= asm") == 2 and "asm" in tile and "32 x u32" in tile, tile  # one of four elements for each result
    assert ".reg .b32 tn_result_1" in kernel.asm["ptx"] and ".reg .b32 tn_result_0" in kernel.asm["ptx"]
    for constants, message in ((dict(PURE=False, PACK=4), "not pure"), (dict(PURE=True, PACK=8), "registers"), (dict(PURE=True, PACK=3), "1, 2, 4 and 8")):
        with pytest.raises(tenon.Error, match=message):
            packed.warmup(x, out, BLOCK=128, machine="sm_80", **constants)


@without
def test_refused_without_one():
    x = fake_gpu.Tensor(64)
    with pytest.raises(tenon.Error, match="there is no GPU: libcuda.so.1 is not installed"):
        double[(1,)](x, x, 64, BLOCK=64)
    with pytest.raises(TypeError, match="double: x is on cuda:0, out is in host memory"):
        double[(1,)](x, np.zeros(64, np.float32), 64, BLOCK=64)
    with pytest.raises(tenon.Error, match="double: machine 'sm_80' can't run here: there is no GPU"):
        double[(1,)](np.zeros(64, np.float32), np.zeros(64, np.float32), 64, BLOCK=64, machine="sm_80")
    target = triton.runtime.driver.active.get_current_target()
    assert target.backend == "cpu" and target.warp_size == 1
    assert triton.runtime.driver.active.utils.get_device_properties()["multiprocessor_count"] >= 1


def test_streams_are_a_gpus():
    x = np.ones(64, np.float32)
    double[(1,)](x, x, 64, BLOCK=64, stream=0)  # means nothing on a CPU
    assert (x == 2).all()


# ---- where there is a GPU -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    return torch


@triton.jit
def positive(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n, other=1)
    tl.device_assert(value > 0, "x is positive")
    tl.store(x + offsets, value + 1, mask=offsets < n)


def test_results(torch):
    for n in (1, 64, 1000, 4096):
        x, out = torch.randn(n, device="cuda"), torch.zeros(n + 8, device="cuda")
        kernel = double[(-(-n // 64),)](x, out, n, BLOCK=64)
        assert kernel.gpu == 0 and torch.equal(out[:n], 2 * x) and not out[n:].any()
    assert double[(16,)](x, out, 1000, BLOCK=64, num_warps=2).asm["ptx"].count(".reqntid 64")


def test_streams(torch):
    x, out, stream = torch.ones(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda"), torch.cuda.Stream()
    double[(1,)](x, out, 1 << 20, BLOCK=64)  # compiling, and loading code, would wait for the stream's sleep
    x.add_(0)
    out.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        x.add_(1)
        double[(1 << 14,)](x, out, 1 << 20, BLOCK=64)  # behind the sum, though that is not done yet
    assert not stream.query()
    stream.synchronize()
    assert (out == 4).all()
    double[(1 << 14,)](out, x, 1 << 20, BLOCK=64, stream=stream)
    stream.synchronize()
    assert (x == 8).all()


def test_graphs(torch):
    x, out, graph = torch.ones(256, device="cuda"), torch.zeros(256, device="cuda"), torch.cuda.CUDAGraph()
    double[(4,)](x, out, 256, BLOCK=64)
    with torch.cuda.graph(graph):
        double[(4,)](x, out, 256, BLOCK=64)
    x.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert (out == 6).all()


def test_assertions(torch):
    x = torch.ones(100, dtype=torch.int32, device="cuda")
    positive[(2,)](x, 100, BLOCK=64, debug=True)
    x[70] = -5
    with pytest.raises(tenon.Error, match="device_assert failed: x is positive"):
        positive[(2,)](x, 100, BLOCK=64, debug=True)
    x[70] = 5
    positive[(2,)](x, 100, BLOCK=64, debug=True)
    assert x[70] == 6


def test_wrong_memory(torch):
    x = torch.ones(64, device="cuda")
    with pytest.raises(TypeError, match="double: x is on cuda:0, out is in host memory"):
        double[(1,)](x, torch.ones(64), 64, BLOCK=64)
    with pytest.raises(tenon.Error, match="x: expected an address in memory of GPU 0"):
        double[(1,)](np.ones(64, np.float32), np.ones(64, np.float32), 64, BLOCK=64, machine="cuda")
    out = torch.zeros(64).pin_memory()  # which the GPU can use
    double[(1,)](np.asarray(torch.ones(64).pin_memory()), out.numpy(), 64, BLOCK=64, machine="cuda")
    torch.cuda.synchronize()
    assert (out == 2).all()


def test_tuning(torch):
    x, out = torch.ones(1 << 22, device="cuda"), torch.zeros(1 << 22, device="cuda")
    tuned = triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 1024}, num_warps=8)], key=["n"])(double)
    tuned[lambda meta: (-(-x.numel() // meta["BLOCK"]),)](x, out, x.numel())
    assert (out == 2).all() and all(0 < times[0] < 5 for times in tuned.timings.values())
    assert 0 < triton.testing.do_bench(lambda: torch.add(x, x, out=out), warmup=2, rep=10) < 5
    target = triton.runtime.driver.active.get_current_target()
    assert (target.backend, target.arch, target.warp_size) == ("cuda", 10 * torch.cuda.get_device_capability()[0] + torch.cuda.get_device_capability()[1], 32)
