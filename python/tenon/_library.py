"""libtenon.so through ctypes: the structures and functions of tenon.h that the package uses, one session a process, and errors as exceptions."""
import ctypes
import os
import pathlib
import threading
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p

STATUS = ("ok", "invalid", "unsupported", "no memory", "input or output", "mismatch", "usage")
STAGES = ("graph", "tile", "loop", "llvm", "asm", "obj")


class Error(Exception):
    """What Tenon's diagnostics say, one a line. `status` is the name of a tn_status."""

    def __init__(self, message, status="invalid"):
        super().__init__(message)
        self.status = status


class Diagnostic(Structure):
    _fields_ = [("severity", c_int), ("status", c_int), ("file", c_char_p), ("line", c_int), ("column", c_int), ("node", c_char_p), ("message", c_char_p)]

    def text(self):
        place = ":".join([part for part in ((self.file or b"").decode(errors="replace"), str(self.line) if self.line else "",
                                            str(self.column) if self.column else "") if part])
        if self.severity == 3:
            return (self.message or b"").decode(errors="replace")
        return f"{place + ': ' if place else ''}{('note', 'warning', 'error')[self.severity]}: {(self.message or b'').decode(errors='replace')}"


class KernelOptions(Structure):
    _fields_ = [("machine", c_char_p), ("threads", c_int), ("num_warps", c_int), ("num_stages", c_int), ("config", c_int), ("debug", c_int),
                ("cache", c_char_p), ("print_after", c_char_p), ("verify", c_int), ("apart", c_int), ("strict", c_int)]


class KernelInfo(Structure):
    _fields_ = [("nvalues", c_size_t), ("code_bytes", c_size_t), ("scratch_bytes", c_size_t), ("front_seconds", c_double), ("lower_seconds", c_double),
                ("emit_seconds", c_double), ("link_seconds", c_double), ("cached", c_int), ("num_warps", c_int), ("num_stages", c_int), ("threads", c_int),
                ("machine", c_char_p), ("pointer_accesses", c_size_t), ("device", c_int), ("shared_bytes", c_size_t), ("registers", c_int), ("spill_bytes", c_int), ("written", c_uint64)]


def _find():
    here = pathlib.Path(__file__).resolve().parent
    named = os.environ.get("TENON_LIBRARY")
    for path in [pathlib.Path(named)] if named else [here / "libtenon.so", here.parents[1] / "build/release/libtenon.so"]:
        if path.is_file():
            return str(path)
    raise ImportError(f"libtenon.so is not there ({named or 'neither in the package nor in build/release'}); build it, or name it in TENON_LIBRARY")


lib = ctypes.CDLL(_find())
_HANDLE, _TEXTS = c_void_p, POINTER(c_char_p)
for _name, _result, *_arguments in [
    ("tn_version", c_char_p),
    ("tn_session_new", c_void_p),
    ("tn_diagnostic_count", c_size_t, _HANDLE),
    ("tn_diagnostic_at", c_int, _HANDLE, c_size_t, POINTER(Diagnostic)),
    ("tn_diagnostics_clear", None, _HANDLE),
    ("tn_free", None, c_void_p),
    ("tn_module_new", c_int, _HANDLE, POINTER(_HANDLE)),
    ("tn_module_free", None, _HANDLE),
    ("tn_compiled_kernel_free", None, _HANDLE),
    ("tn_module_add", c_int, _HANDLE, c_char_p, c_int, c_char_p, c_size_t, POINTER(c_int)),
    ("tn_module_bind", c_int, _HANDLE, c_int, c_char_p, c_char_p),
    ("tn_module_bind_function", c_int, _HANDLE, c_int, c_char_p, c_int, c_char_p),
    ("tn_kernel_compile", c_int, _HANDLE, _HANDLE, c_int, c_char_p, _TEXTS, c_size_t, POINTER(KernelOptions), POINTER(_HANDLE)),
    ("tn_kernel_emit", c_int, _HANDLE, _HANDLE, c_int, c_char_p, _TEXTS, c_size_t, POINTER(KernelOptions), c_int, POINTER(c_void_p), POINTER(c_size_t)),
    ("tn_kernel_launch", c_int, _HANDLE, c_char_p, c_char_p, c_size_t),
    ("tn_kernel_launch_on", c_int, _HANDLE, c_char_p, c_char_p, c_size_t, c_void_p),
    ("tn_kernel_wait", c_int, _HANDLE, c_void_p),
    ("tn_kernel_error", c_char_p),
    ("tn_kernel_check", c_int, _HANDLE, _HANDLE, c_char_p, c_char_p, c_size_t, c_char_p, c_char_p),
    ("tn_kernel_describe", c_int, _HANDLE, POINTER(KernelInfo)),
]:
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes = _result, _arguments

# Without types of arguments, which ctypes would convert one by one: called with handle, bytes, bytes and count (and a c_void_p for the stream) as they must be.
launch, launch_on = lib["tn_kernel_launch"], lib["tn_kernel_launch_on"]
lock = threading.RLock()  # a session is for one thread at a time
session = lib.tn_session_new()
if not session:
    raise MemoryError("no memory for a session of Tenon")


def version():
    return lib.tn_version().decode()


def diagnostics():
    """Texts of the session's diagnostics, which are cleared. Called with the lock held."""
    texts = []
    one = Diagnostic()
    for i in range(lib.tn_diagnostic_count(session)):
        if lib.tn_diagnostic_at(session, i, ctypes.byref(one)) == 0:
            texts.append((one.severity, one.text()))
    lib.tn_diagnostics_clear(session)
    return texts


def check(status):
    """Raises what the diagnostics say if a call failed. Called with the lock held."""
    if status:
        texts = [text for _, text in diagnostics()]
        raise Error("\n".join(texts) or f"the call failed ({STATUS[status]})", STATUS[status])


def texts(strings):
    """An array of C strings; None becomes NULL."""
    return (c_char_p * len(strings))(*[None if s is None else s.encode() for s in strings])
