"""Address, element type and extent of what callers hand over as tensors: NumPy arrays, PyTorch tensors, anything that speaks DLPack."""
import ctypes
import sys

import numpy

_NAMES = {"float32": "f32", "float16": "f16", "float64": "f64", "bfloat16": "bf16", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8",
          "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "i1", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}
_CODES = {(0, 8): "i8", (0, 16): "i16", (0, 32): "i32", (0, 64): "i64", (1, 8): "u8", (1, 16): "u16", (1, 32): "u32", (1, 64): "u64", (2, 16): "f16", (2, 32): "f32",
          (2, 64): "f64", (4, 16): "bf16", (6, 8): "i1", (10, 8): "f8e4m3", (12, 8): "f8e5m2"}

# NumPy's C interface fixes where an array keeps its address: behind the head that all objects have. Reading it there takes a tenth of the time of .ctypes.data.
ADDRESS = object.__basicsize__


class _Types(dict):
    """dtype -> text of a pointer to such elements; when 16 divides the address. `place` stands before it: "cuda:0|*f32" is one to memory of the first GPU."""

    def __init__(self, place=""):
        super().__init__()
        self.place = place

    def __missing__(self, dtype):
        name = str(dtype).removeprefix("torch.")
        if name not in _NAMES:
            raise TypeError(f"a kernel can't take elements of type {name}; it can take {', '.join(_NAMES)}")
        self[dtype] = (f"{self.place}*{_NAMES[name]}", f"{self.place}*{_NAMES[name]}:16")
        return self[dtype]


class _GPUTypes(dict):
    """Number of a GPU -> _Types."""

    def __missing__(self, number):
        self[number] = _Types(f"cuda:{number}|")
        return self[number]


LOCKED = "read-only|"  # stands before the type of an array that nobody may write
array_types, locked_types, _torch_types, _gpu_types = _Types(), _Types(LOCKED), _Types(), _GPUTypes()
_DEVICES = {4: "OpenCL", 7: "Vulkan", 8: "Metal", 9: "VPI", 10: "ROCm", 11: "ROCm host memory", 14: "oneAPI", 15: "WebGPU", 16: "Hexagon"}
_SORTS = {0: "int", 1: "uint", 2: "float", 3: "opaque", 4: "bfloat", 5: "complex", 6: "bool"}
_HOST, _CUDA = (1, 3), (2, 13)  # DLPack's numbers of devices; CUDA's host memory, and what CUDA moves by itself, are of either side


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]


_capsule, _is_capsule = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_IsValid
_capsule.restype, _capsule.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_capsule.restype, _is_capsule.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def _device(v):
    """DLPack's type and number of the device that a tensor lies on."""
    return tuple(map(int, v.__dlpack_device__())) if hasattr(v, "__dlpack_device__") else (1, 0)


def _dlpack(v):
    """The DLTensor behind an object, whether nobody may write it, and the capsule that owns it."""
    if not hasattr(v, "__dlpack__"):
        raise TypeError(f"an argument of type {type(v).__name__} is no number and no tensor (NumPy, PyTorch, DLPack)")
    stream = {"stream": -1} if _device(v)[0] in _CUDA else {}  # -1: nobody has to wait, all is in the stream of the launch
    try:
        capsule = v.__dlpack__(**stream, max_version=(1, 0))
    except TypeError:  # of before DLPack 1.0
        capsule = v.__dlpack__(**stream)
    if _is_capsule(capsule, b"dltensor"):
        return _DLTensor.from_address(_capsule(capsule, b"dltensor")), False, capsule
    if not _is_capsule(capsule, b"dltensor_versioned"):
        raise TypeError(f"__dlpack__ of {type(v).__name__} gave no tensor that is still to be taken, but {capsule!r}")
    found = _Versioned.from_address(_capsule(capsule, b"dltensor_versioned"))
    if found.major != 1:
        raise TypeError(f"__dlpack__ of {type(v).__name__} gave a tensor of DLPack {found.major}.{found.minor}; 0.x and 1.x are understood")
    return found.tensor, bool(found.flags & 1), capsule


class MockTensor:
    """Stands for a tensor of an element type where a kernel is only compiled."""

    def __init__(self, dtype):
        self.dtype = dtype

    @classmethod
    def of(cls, v):
        return cls(v) if type(v).__module__ == "torch" and type(v).__name__ == "dtype" else v


_NUMBERS = {int, float, bool, type(None)}


def apart_on_gpu(values):
    """No two of PyTorch's tensors among them lie in storages that overlap."""
    try:
        spans = [(s.data_ptr(), s.nbytes()) for s in [v.untyped_storage() for v in values if v.__class__ not in _NUMBERS]]
    except AttributeError:  # another library's
        return False
    spans.sort()
    end = 0
    for start, size in spans:
        if start < end:
            return False
        end = start + size
    return True


def _of_torch(v):
    try:
        pointer = v.data_ptr()
    except RuntimeError:  # sparse, or of a wrapper
        raise TypeError(f"a tensor of layout {v.layout} on {v.device} has no memory that kernels could read") from None
    if v.is_cpu:
        return _torch_types[v.dtype][not pointer & 15], pointer
    if v.is_cuda:
        return _gpu_types[v.get_device()][v.dtype][not pointer & 15], pointer
    raise TypeError(f"a tensor on {v.device}: kernels run on CPUs and on NVIDIA GPUs")


def _of_dlpack(v):
    t, locked, _capsule_of = _dlpack(v)
    if t.device_type not in _HOST + _CUDA:
        device = _DEVICES.get(t.device_type, f"a device of DLPack type {t.device_type}")
        raise TypeError(f"a tensor on {device}: kernels run on CPUs and on NVIDIA GPUs")
    place = f"cuda:{t.device_id}|" if t.device_type in _CUDA else LOCKED if locked else ""
    if (t.code, t.bits) not in _CODES or t.lanes != 1:
        sort = f"{_SORTS[t.code]}{t.bits}" if t.code in _SORTS else f"DLPack's type {t.code} of {t.bits} bits"
        raise TypeError(f"a kernel can't take elements of type {sort}{f' in vectors of {t.lanes}' if t.lanes != 1 else ''}; it can take {', '.join(_NAMES)}")
    pointer = (t.data or 0) + t.byte_offset
    return f"{place}*{_CODES[t.code, t.bits]}" + ("" if pointer & 15 else ":16"), pointer


def _torch_tensor(kind):
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(kind, torch.Tensor)


def _of_numpy(v):
    pointer = v.ctypes.data
    return (array_types if v.flags.writeable else locked_types)[v.dtype][not pointer & 15], pointer


def reader(kind):
    """What makes ("*f32:16", address), the text of a pointer's type and the address, of a tensor of this class."""
    if issubclass(kind, numpy.ndarray):
        return _of_numpy
    if issubclass(kind, MockTensor):
        return lambda v: (_torch_types[v.dtype][1], None)
    return _of_torch if _torch_tensor(kind) else _of_dlpack


def elements(v):
    """How many elements lie from the first to the last of a tensor; -1 for what is none."""
    if isinstance(v, numpy.ndarray):
        shape, strides = v.shape, [s // v.itemsize for s in v.strides]
    elif _torch_tensor(type(v)):
        shape, strides = v.shape, v.stride()
    elif hasattr(v, "__dlpack__"):
        t, _, _capsule_of = _dlpack(v)
        shape = t.shape[: t.ndim]
        strides = t.strides[: t.ndim] if t.strides else [0] * t.ndim
        if not t.strides:
            step = 1
            for i in reversed(range(t.ndim)):
                strides[i], step = step, step * shape[i]
    else:
        return -1
    return 0 if 0 in shape else 1 + sum((n - 1) * max(s, 0) for n, s in zip(shape, strides))
