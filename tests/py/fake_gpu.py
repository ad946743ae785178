"""For tests of GPU code where there is no GPU: tensors in the memory of one, and the state of the fake driver (tests/unit/fake_cuda.c)."""
import ctypes as c

import numpy as np

_new = c.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]


class _Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32), ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64), ("context", c.c_void_p), ("deleter", c.c_void_p)]


class Tensor:
    """f32 elements that claim to lie on a device of DLPack's."""

    def __init__(self, n, device=0, kind=2, offset=0):
        self.memory = np.zeros(n + 32, np.float32)
        self.address = (self.memory.ctypes.data + 63) // 64 * 64 + offset
        self.shape = (c.c_int64 * 1)(n)
        self.tensor = _Tensor(self.address, kind, device, 1, 2, 32, 1, self.shape, None, 0, None, None)
        self.kind, self.device, self.asked = kind, device, []

    def __dlpack_device__(self):
        return self.kind, self.device

    def __dlpack__(self, stream=None):
        self.asked.append(stream)
        return _new(c.addressof(self.tensor), b"dltensor", None)


class State(c.Structure):
    """The first fields of fake_state."""

    _fields_ = [("failing", c.c_char_p)] + [(name, c.c_int) for name in ("result", "after", "devices", "retained", "pushed", "memory", "modules", "streams", "events", "graphs",
                                                                        "execs")] + \
               [("bytes", c.c_int64), ("most_bytes", c.c_int64), ("limit", c.c_int), ("most_threads", c.c_int), ("foreign", c.c_ulonglong), ("trapped", c.c_int64),
                ("stream", c.c_void_p), ("launch", c.c_uint * 7)]


def state():
    """Of the driver that the process was started with by LD_PRELOAD."""
    return State.in_dll(c.CDLL("libcuda.so.1"), "fake_cuda")
