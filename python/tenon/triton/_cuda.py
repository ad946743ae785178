"""CUDA's driver through ctypes, as far as timing and asking a GPU need it. Nothing here is loaded before a GPU is used."""
import ctypes
import functools
import sys
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_void_p

_MAJOR, _MINOR, _PROCESSORS, _SHARED, _REGISTERS, _L2 = 75, 76, 16, 97, 82, 38
in_use = False  # a kernel was compiled for a GPU
_FLUSH = 256 << 20  # bytes: more than any L2 cache holds


@functools.cache
def _library():
    """The driver; None: there is none, or no GPU."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = c_int()
    return library if library.cuInit(0) == 0 and library.cuDeviceGetCount(byref(count)) == 0 and count.value > 0 else None


def _call(name, *arguments):
    result = getattr(_library(), name)(*arguments)
    if result:
        text = ctypes.c_char_p()
        _library().cuGetErrorName(result, byref(text))
        raise RuntimeError(f"{name} failed: {(text.value or b'').decode() or result}")


def is_there():
    return _library() is not None


def current_device():
    """The GPU that PyTorch has chosen, else the first."""
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_available() else 0


_raw_stream = None  # PyTorch's function, once PyTorch is there


def current_stream(number):
    """The stream that PyTorch puts work for a GPU into; without PyTorch the default stream, 0."""
    global _raw_stream
    if _raw_stream is None:
        torch = sys.modules.get("torch")
        if torch is None:  # it may come later
            return 0
        _raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", lambda number: 0)
    return _raw_stream(number)


class Device:
    """A GPU's primary context, which PyTorch shares: `with device:` makes it the thread's."""

    def __init__(self, number):
        self.number, self._device, self._context = number, c_int(), c_void_p()
        _call("cuDeviceGet", byref(self._device), number)
        _call("cuDevicePrimaryCtxRetain", byref(self._context), self._device)

    def __enter__(self):
        _call("cuCtxPushCurrent_v2", self._context)
        return self

    def __exit__(self, *error):
        _call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def _attribute(self, which):
        value = c_int()
        _call("cuDeviceGetAttribute", byref(value), which, self._device)
        return value.value

    @property
    def capability(self):
        return self._attribute(_MAJOR), self._attribute(_MINOR)

    def properties(self):
        """As Triton's utils.get_device_properties says it."""
        return {"multiprocessor_count": self._attribute(_PROCESSORS), "max_shared_mem": self._attribute(_SHARED), "max_num_regs": self._attribute(_REGISTERS),
                "warpSize": 32, "l2_bytes": self._attribute(_L2)}

    def time(self, fn, n, before=None):
        """Milliseconds of each of n calls by the GPU's clock, and of all from the first on, with what comes between: what lies in the L2 cache is pushed out before
        each."""
        stream = c_void_p(current_stream(self.number))
        flush, events = c_uint64(), []
        with self:
            try:
                _call("cuMemAlloc_v2", byref(flush), c_size_t(_FLUSH))
                for _ in range(2 * n):
                    events.append(c_void_p())
                    _call("cuEventCreate", byref(events[-1]), 0)
                for i in range(n):
                    if before:
                        before()
                    _call("cuMemsetD8Async", flush, 0, c_size_t(_FLUSH), stream)
                    _call("cuEventRecord", events[2 * i], stream)
                    fn()
                    _call("cuEventRecord", events[2 * i + 1], stream)
                _call("cuStreamSynchronize", stream)
                times, whole = (c_float * n)(), c_float()
                for i in range(n):
                    _call("cuEventElapsedTime", byref(times, 4 * i), events[2 * i], events[2 * i + 1])
                _call("cuEventElapsedTime", byref(whole), events[0], events[-1])
                return list(times), whole.value
            finally:
                for event in events:
                    _library().cuEventDestroy_v2(event)
                _library().cuMemFree_v2(flush)


device = functools.cache(Device)
