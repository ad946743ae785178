"""triton.runtime.driver: what kernels run on, as host code written for Triton asks it."""
import collections
import os

from .. import _library as c
from . import _cuda

Target = collections.namedtuple("GPUTarget", "backend arch warp_size")


class _Utils:
    def get_device_properties(self, device=None):
        """Of a GPU: multiprocessor_count, max_shared_mem, max_num_regs, warpSize. Without a GPU: of the CPU, as one multiprocessor a core."""
        if not _cuda.is_there():
            return {"multiprocessor_count": len(os.sched_getaffinity(0)), "max_shared_mem": 0, "max_num_regs": 0, "warpSize": 1}
        return _cuda.device(_cuda.current_device() if device is None else device).properties()


class _Active:
    utils = _Utils()

    def get_current_device(self):
        return _cuda.current_device()

    def get_current_stream(self, device=None):
        return _cuda.current_stream(self.get_current_device() if device is None else device)

    def get_current_target(self):
        """Target("cuda", 90, 32) for compute capability 9.0; Target("cpu", …, 1) where there is no GPU."""
        if not _cuda.is_there():
            return Target("cpu", os.uname().machine, 1)
        major, minor = _cuda.device(self.get_current_device()).capability
        return Target("cuda", 10 * major + minor, 32)

    def get_active_torch_device(self):
        import torch

        return torch.device("cuda", self.get_current_device()) if _cuda.is_there() else torch.device("cpu")

    def get_benchmarker(self):
        from .testing import do_bench

        return do_bench


active = _Active()
version = c.version
