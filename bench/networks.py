"""The public C API (include/tenon/tenon.h) through ctypes: as much of it as the benchmarks need."""
import ctypes
import time

import numpy as np


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class LoadOptions(ctypes.Structure):
    _fields_ = [("dim_names", ctypes.POINTER(ctypes.c_char_p)), ("dim_sizes", ctypes.POINTER(ctypes.c_int64)), ("ndims", ctypes.c_size_t)]


class CompileOptions(ctypes.Structure):
    _fields_ = [("machine", ctypes.c_char_p), ("threads", ctypes.c_int), ("passes", ctypes.c_char_p), ("print_after", ctypes.c_char_p),
                ("verify", ctypes.c_int)]


class ExecutableInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("kernels", "kernel_steps", "constant_bytes", "packed_bytes", "code_bytes")] + \
               [(name + "_seconds", ctypes.c_double) for name in ("graph", "fuse", "lower", "emit", "link", "load")] + \
               [("threads", ctypes.c_int), ("machine", ctypes.c_char_p), ("device", ctypes.c_int)]


class Diagnostic(ctypes.Structure):
    _fields_ = [("severity", ctypes.c_int), ("status", ctypes.c_int), ("file", ctypes.c_char_p), ("line", ctypes.c_int),
                ("column", ctypes.c_int), ("node", ctypes.c_char_p), ("message", ctypes.c_char_p)]


CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
TORCH = {"int": 0, "uint": 1, "float": 2, "bfloat": 4}
FLOAT8 = {"float8_e4m3fn": 10, "float8_e5m2": 12}


def tensor_of(array):
    """Of an array, or of a dense tensor of PyTorch's on the CPU or a GPU. The data must last as long."""
    if hasattr(array, "data_ptr"):
        name = str(array.dtype).removeprefix("torch.")
        kind = name.rstrip("0123456789")
        code, bits = (FLOAT8[name], 8) if name in FLOAT8 else (TORCH[kind], int(name[len(kind):]))
        shape = (ctypes.c_int64 * max(array.dim(), 1))(*array.shape)
        device = (2, array.device.index or 0) if array.is_cuda else (1, 0)
        return DLTensor(array.data_ptr(), *device, array.dim(), code, bits, 1, shape, None, 0)
    shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    code = CODES[array.dtype.kind]
    return DLTensor(array.ctypes.data, 1, 0, array.ndim, code, array.dtype.itemsize * 8, 1, shape, None, 0)


class Error(Exception):
    pass


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(str(path))
        for name in ("tn_session_new", "tn_context_error", "tn_version"):
            getattr(self.c, name).restype = ctypes.c_void_p if name == "tn_session_new" else ctypes.c_char_p
        for name in ("tn_diagnostic_count", "tn_input_count", "tn_output_count"):
            getattr(self.c, name).restype = ctypes.c_size_t

    def load(self, model, threads, inputs, dims=None, machine=None, outputs=None, passes=None, options=None):
        """model: an ONNX file, or Graph IR if its name ends in .tn; inputs: arrays or tensors by name, in the network's order; outputs: tensors to write into, NULL:
        Tenon allocates arrays; options: of the session, by name."""
        return Network(self, str(model), threads, inputs, dims or {}, machine, outputs, passes, options or {})


class Network:
    """A compiled network with its inputs. `run` writes into the outputs given, or those that the first run allocated."""

    def __init__(self, library, model, threads, inputs, dims, machine=None, outputs=None, passes=None, options=None):
        self.c, self.inputs, self.handles = library.c, inputs, []
        self.session = ctypes.c_void_p(self.c.tn_session_new())
        self.network, self.executable, self.context = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        names = (ctypes.c_char_p * len(dims))(*(name.encode() for name in dims))
        load = LoadOptions(names, (ctypes.c_int64 * len(dims))(*dims.values()), len(dims))
        start = time.perf_counter()
        for name, value in (options or {}).items():
            self.check(self.c.tn_session_option(self.session, name.encode(), value.encode()))
        if model.endswith(".tn"):
            self.check(self.c.tn_load_text(self.session, model.encode(), ctypes.byref(self.network)))
        else:
            self.check(self.c.tn_load_onnx(self.session, model.encode(), ctypes.byref(load), ctypes.byref(self.network)))
        self.import_ms = (time.perf_counter() - start) * 1e3
        options = CompileOptions(machine.encode() if machine else None, threads, passes.encode() if passes else None, None, 0)
        self.check(self.c.tn_compile(self.session, self.network, ctypes.byref(options), ctypes.byref(self.executable)))
        self.compile_ms = (time.perf_counter() - start) * 1e3
        self.check(self.c.tn_context_new(self.executable, ctypes.byref(self.context)))
        self.arrays = [value if hasattr(value, "data_ptr") else np.ascontiguousarray(value) for value in inputs.values()]
        self.ninputs, self.noutputs = len(self.arrays), self.c.tn_output_count(self.network)
        self.dl_inputs = (DLTensor * self.ninputs)(*map(tensor_of, self.arrays))
        self.given = outputs
        self.dl_outputs = (DLTensor * self.noutputs)(*map(tensor_of, outputs or []))
        self.run()

    def check(self, status):
        if status == 0:
            return
        messages = [self.c.tn_context_error(self.context).decode()] if self.context else []
        for i in range(self.c.tn_diagnostic_count(self.session)):
            d = Diagnostic()
            self.c.tn_diagnostic_at(self.session, ctypes.c_size_t(i), ctypes.byref(d))
            messages.append((f"node '{d.node.decode()}': " if d.node else "") + d.message.decode())
        raise Error("; ".join(messages) or f"status {status}")

    def run(self):
        status = self.c.tn_run(self.context, self.dl_inputs, ctypes.c_size_t(self.ninputs), self.dl_outputs, ctypes.c_size_t(self.noutputs))
        if status:
            self.check(status)

    def outputs(self):
        arrays = []
        kinds = {code: kind for kind, code in CODES.items()}
        for t in self.dl_outputs:
            shape = tuple(t.shape[i] for i in range(t.ndim))
            dtype = np.dtype(bool) if kinds[t.code] == "b" else np.dtype(f"{kinds[t.code]}{t.bits // 8}")
            data = ctypes.string_at(t.data, int(np.prod(shape)) * dtype.itemsize)
            arrays.append(np.frombuffer(data, dtype).reshape(shape))
        return arrays

    def profile(self, runs):
        """Rows (kernel, nodes, seconds a run, bytes, programs, threads), in run order."""
        class Row(ctypes.Structure):
            _fields_ = [("kernel", ctypes.c_char_p), ("nodes", ctypes.c_char_p), ("runs", ctypes.c_int64), ("programs", ctypes.c_int64), ("seconds", ctypes.c_double),
                        ("least", ctypes.c_double), ("bytes", ctypes.c_int64), ("threads", ctypes.c_int)]
        self.c.tn_profile_count.restype = ctypes.c_size_t
        self.c.tn_profile_start(self.context, 1)
        for _ in range(runs):
            self.run()
        rows, row = [], Row()
        for i in range(self.c.tn_profile_count(self.context)):
            self.check(self.c.tn_profile_at(self.context, ctypes.c_size_t(i), ctypes.byref(row)))
            rows.append((row.kernel.decode(), (row.nodes or b"").decode(), row.least, row.bytes, row.programs, row.threads))
        self.c.tn_profile_start(self.context, 0)
        return rows

    def info(self):
        info = ExecutableInfo()
        self.c.tn_executable_describe(self.executable, ctypes.byref(info))
        return info

    def close(self):
        for t in self.dl_outputs if not self.given else []:
            self.c.tn_tensor_free(ctypes.byref(t))
        self.c.tn_context_free(self.context)
        self.c.tn_executable_free(self.executable)
        self.c.tn_network_free(self.network)
        self.c.tn_session_free(self.session)
