"""libtenon through ctypes, for tests: load, compile, run with NumPy arrays. TENON_LIBRARY names the library."""
import ctypes as c
import os

import ml_dtypes
import numpy as np


class Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class DataType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", Device), ("ndim", c.c_int32), ("dtype", DataType), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class CompileOptions(c.Structure):
    _fields_ = [("machine", c.c_char_p), ("threads", c.c_int), ("passes", c.c_char_p), ("print_after", c.c_char_p), ("verify", c.c_int)]


class LoadOptions(c.Structure):
    _fields_ = [("dim_names", c.POINTER(c.c_char_p)), ("dim_sizes", c.POINTER(c.c_int64)), ("ndims", c.c_size_t)]


class Diagnostic(c.Structure):
    _fields_ = [("severity", c.c_int), ("status", c.c_int), ("file", c.c_char_p), ("line", c.c_int), ("column", c.c_int), ("node", c.c_char_p), ("message", c.c_char_p)]


class ValueInfo(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dtype", DataType), ("dtype_name", c.c_char_p), ("rank", c.c_int), ("dim", c.POINTER(c.c_int64)), ("dim_text", c.POINTER(c.c_char_p))]


STATUS = ("ok", "invalid", "unsupported", "no memory", "io", "mismatch", "usage")
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
TYPES = {(6, 8): np.bool_, (4, 16): ml_dtypes.bfloat16, (10, 8): ml_dtypes.float8_e4m3fn, (12, 8): ml_dtypes.float8_e5m2}
TYPES |= {(0, n): np.dtype(f"i{n // 8}") for n in (8, 16, 32, 64)} | {(1, n): np.dtype(f"u{n // 8}") for n in (8, 16, 32, 64)}
TYPES |= {(2, n): np.dtype(f"f{n // 8}") for n in (16, 32, 64)} | {(5, n): np.dtype(f"c{n // 8}") for n in (64, 128)}
OWN_CODES = {np.dtype(kind): code for (code, _), kind in TYPES.items() if code in (4, 10, 12)}


def library():
    lib = c.CDLL(os.environ["TENON_LIBRARY"])
    pointer = c.c_void_p
    for name, result, arguments in (
            ("tn_session_new", pointer, []), ("tn_session_free", None, [pointer]), ("tn_session_option", c.c_int, [pointer, c.c_char_p, c.c_char_p]),
            ("tn_diagnostic_count", c.c_size_t, [pointer]), ("tn_diagnostic_at", c.c_int, [pointer, c.c_size_t, pointer]),
            ("tn_load_onnx", c.c_int, [pointer, c.c_char_p, pointer, pointer]), ("tn_load_onnx_bytes", c.c_int, [pointer, c.c_char_p, c.c_char_p, c.c_size_t, pointer, pointer]),
            ("tn_network_free", None, [pointer]), ("tn_input_count", c.c_size_t, [pointer]), ("tn_output_count", c.c_size_t, [pointer]),
            ("tn_input_info", c.c_int, [pointer, c.c_size_t, pointer]), ("tn_output_info", c.c_int, [pointer, c.c_size_t, pointer]),
            ("tn_compile", c.c_int, [pointer, pointer, pointer, pointer]), ("tn_executable_free", None, [pointer]),
            ("tn_context_new", c.c_int, [pointer, pointer]), ("tn_context_free", None, [pointer]), ("tn_context_error", c.c_char_p, [pointer]),
            ("tn_run", c.c_int, [pointer, pointer, c.c_size_t, pointer, c.c_size_t]), ("tn_tensor_free", None, [pointer])):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class Error(Exception):
    """status: a word of STATUS."""

    def __init__(self, status, text):
        super().__init__(f"{STATUS[status]}: {text}")
        self.status = STATUS[status]


def to_tensor(array):
    """(tensor, what must stay alive)"""
    shape = (c.c_int64 * array.ndim)(*array.shape)
    strides = (c.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
    code = OWN_CODES.get(array.dtype, CODES.get(array.dtype.kind))
    kind = DataType(code, array.itemsize * 8, 1)
    return Tensor(array.ctypes.data, Device(1, 0), array.ndim, kind, shape, strides, 0), (array, shape, strides)


def to_array(tensor):
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    kind = np.dtype(TYPES[tensor.dtype.code, tensor.dtype.bits])
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    return np.frombuffer(c.string_at(tensor.data, size), kind).reshape(shape) if size else np.empty(shape, kind)


class Model:
    """A network compiled for this machine. model(x, …): arrays in, arrays out; sizes may differ from call to call."""

    def __init__(self, path, machine=None, threads=1, passes=None, dims=None, session_options=None):
        self.lib = library()
        self.session, self.network = c.c_void_p(self.lib.tn_session_new()), c.c_void_p()
        self.executable, self.context = c.c_void_p(), c.c_void_p()
        for name, value in (session_options or {}).items():
            self.check(self.lib.tn_session_option(self.session, name.encode(), value.encode()))
        dims = dims or {}
        load = LoadOptions((c.c_char_p * len(dims))(*(n.encode() for n in dims)), (c.c_int64 * len(dims))(*dims.values()), len(dims))
        options = CompileOptions(machine and machine.encode(), threads, passes and passes.encode(), None, 0)
        self.check(self.lib.tn_load_onnx(self.session, os.fsencode(path), c.byref(load), c.byref(self.network)))
        self.check(self.lib.tn_compile(self.session, self.network, c.byref(options), c.byref(self.executable)))
        self.check(self.lib.tn_context_new(self.executable, c.byref(self.context)))

    def diagnostics(self):
        found = []
        for i in range(self.lib.tn_diagnostic_count(self.session)):
            d = Diagnostic()
            self.lib.tn_diagnostic_at(self.session, i, c.byref(d))
            found.append(d.message.decode(errors="replace"))
        return found

    def check(self, status):
        if status:
            raise Error(status, "; ".join(self.diagnostics()))

    def input_names(self):
        names, info = [], ValueInfo()
        for i in range(self.lib.tn_input_count(self.network)):
            self.lib.tn_input_info(self.network, i, c.byref(info))
            names.append(info.name.decode())
        return names

    def __call__(self, *arrays):
        kept = [to_tensor(array) for array in arrays]
        inputs = (Tensor * max(len(kept), 1))(*(tensor for tensor, _ in kept))
        n = self.lib.tn_output_count(self.network)
        outputs = (Tensor * n)()
        status = self.lib.tn_run(self.context, inputs, len(kept), outputs, n)
        if status:
            raise Error(status, self.lib.tn_context_error(self.context).decode(errors="replace"))
        results = [to_array(t) for t in outputs]
        for t in outputs:
            self.lib.tn_tensor_free(c.byref(t))
        return results

    def __del__(self):
        if getattr(self, "lib", None):
            self.lib.tn_context_free(self.context)
            self.lib.tn_executable_free(self.executable)
            self.lib.tn_network_free(self.network)
            self.lib.tn_session_free(self.session)
