"""Run by test_triton_gpu.py with the fake driver loaded. The kernel that the driver knows is called f, and does nothing."""
import importlib.metadata
import importlib.util
import sys

import numpy as np
import pytest

import fake_gpu
import tenon
import tenon.triton as triton
import tenon.triton.language as tl

state = fake_gpu.state()
state.devices, state.most_threads = 2, 1024


@triton.jit
def f(x, out, n, BLOCK: tl.constexpr):
    tl.device_assert(n < 65, "too many")
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


def launched():
    return tuple(state.launch), state.stream


def test_launch():
    x, out = fake_gpu.Tensor(100), fake_gpu.Tensor(100)
    kernel = f[(2, 3)](x, out, 100, BLOCK=64)
    assert launched() == ((6, 1, 1, 128, 1, 1, 0), None)
    assert kernel.gpu == 0 and kernel.machine == "sm_90a" and kernel.n_regs == 104 and kernel.n_spills == 103 and kernel.metadata.num_warps == 4
    assert kernel.texts == ["*f32:16", "*f32:16", "i32:4", "=64"]
    assert ".target sm_90a" in kernel.asm["ptx"]
    assert x.asked == [-1]  # the exporter does not wait
    f[lambda meta: (meta["BLOCK"],)](x, out, 100, BLOCK=64, num_warps=8, stream=0x1234567890)
    assert launched() == ((64, 1, 1, 256, 1, 1, 0), 0x1234567890)
    assert f[(2,)](x, out, 100, BLOCK=64) is kernel
    kernel[(5,)](x, out, 100, BLOCK=64)
    assert launched()[0][0] == 5
    f[(0,)](x, out, 100, BLOCK=64)
    assert launched()[0][0] == 5  # nothing to launch


def test_devices():
    first, second, managed, host = fake_gpu.Tensor(64), fake_gpu.Tensor(64, device=1), fake_gpu.Tensor(64, kind=13, offset=4), np.zeros(64, np.float32)
    one = f[(1,)](second, second, 64, BLOCK=64)
    two = f[(1,)](first, managed, 64, BLOCK=64)
    assert (one.gpu, two.gpu) == (1, 0) and two.texts[:2] == ["*f32:16", "*f32"]
    assert f[(1,)](second, second, 64, BLOCK=64, machine="sm_80").gpu == 1
    for arguments, message in (((first, second), "f: x is on cuda:0, out is on cuda:1; all tensors of a launch lie on one device"),
                               ((first, host), "f: x is on cuda:0, out is in host memory; all tensors"), ((host, second), "f: x is in host memory, out is on cuda:1; all tensors")):
        with pytest.raises(TypeError, match=message):
            f[(1,)](*arguments, 64, BLOCK=64)
    with pytest.raises(TypeError, match="f: x is on cuda:0, and machine 'baseline' is a CPU"):
        f[(1,)](first, first, 64, BLOCK=64, machine="baseline")
    with pytest.raises(tenon.Error, match="there is no GPU 7"):
        f[(1,)](*[fake_gpu.Tensor(64, device=7)] * 2, 64, BLOCK=64)
    with pytest.raises(TypeError, match="a tensor on Metal: kernels run on CPUs and on NVIDIA GPUs"):
        f[(1,)](*[fake_gpu.Tensor(64, kind=8)] * 2, 64, BLOCK=64)
    with pytest.raises(tenon.Error, match="check=True runs on the CPU") as caught:
        f[(1,)](first, first, 64, BLOCK=64, check=True)
    assert caught.value.status == "unsupported"
    assert f[(1,)](host, host, 64, BLOCK=64).gpu is None


def test_errors():
    x = fake_gpu.Tensor(64)
    state.foreign = x.address
    with pytest.raises(tenon.Error, match="x: expected an address in memory of GPU 0"):
        f[(1,)](x, fake_gpu.Tensor(64), 64, BLOCK=64)
    state.foreign, state.failing, state.result, state.after = 0, b"cuLaunchKernel", 719, 0
    with pytest.raises(tenon.Error, match=r"cuLaunchKernel failed: FAKE_ERROR \(went wrong\)"):
        f[(1,)](x, x, 64, BLOCK=64)
    state.failing = None
    with pytest.raises(tenon.Error, match="2048 threads|1024 threads|num_warps"):
        f[(1,)](x, x, 64, BLOCK=64, num_warps=64)
    assert state.pushed == 0


def test_assertions():
    x = fake_gpu.Tensor(64)
    state.trapped = 1
    with pytest.raises(tenon.Error, match=r"triton_fake_gpu.py:\d+: device_assert failed: too many"):
        f[(1,)](x, x, 64, BLOCK=64, debug=True)
    assert state.trapped == 0
    f[(1,)](x, x, 64, BLOCK=64, debug=True)


def test_torch():
    if not importlib.util.find_spec("torch") or "+cpu" not in importlib.metadata.version("torch"):
        pytest.skip("a PyTorch with CUDA would ask the fake driver")
    import torch

    class OnGPU(torch.Tensor):
        is_cpu, is_cuda = False, True

        def get_device(self):
            return 1

    x = torch.zeros(64).as_subclass(OnGPU)
    assert f[(1,)](x, x, 64, BLOCK=64).gpu == 1


def test_timing():
    x = fake_gpu.Tensor(64)
    f[(1,)](x, x, 64, BLOCK=64)
    assert triton.testing.do_bench(lambda: f[(1,)](x, x, 64, BLOCK=64), warmup=2, rep=10) == 1.5
    assert triton.testing.do_bench(lambda: None, warmup=2, rep=10, quantiles=[0.5, 0.2]) == [1.5, 1.5]
    tuned = triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64}, num_warps=8)], key=["n"])(f)
    assert tuned[(1,)](x, x, 64).num_warps == 4
    assert [times[0] for times in tuned.timings.values()] == [1.5, 1.5]
    assert state.events == 0 and state.memory == 0 and state.pushed == 0


def test_driver():
    active = triton.runtime.driver.active
    assert active.get_current_target() == ("cuda", 90, 32) and active.get_current_target().backend == "cuda"
    assert active.utils.get_device_properties(0) == {"multiprocessor_count": 80, "max_shared_mem": 232448, "max_num_regs": 65536, "warpSize": 32, "l2_bytes": 6 << 20}
    assert active.get_current_stream() == 0 and active.get_current_device() == 0


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider", "-W", "error"]))
