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
