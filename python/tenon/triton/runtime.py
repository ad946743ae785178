"""@triton.jit, launches, autotune, heuristics.

A launch must cost microseconds. For each kernel a function is made whose parameters are the kernel's own, so Python itself binds what a caller gives. It makes
a key and the launch values: the key has the text that tn_kernel_compile takes for each parameter ("*f32:16", "i32=1"), or class and value of a constant.
Known keys go straight to the compiled kernel."""
import ast
import ctypes
import functools
import inspect
import operator
import os
import re
import struct
import sys
import textwrap
import types
import weakref

import numpy

from .. import _library as c
from . import _cuda, driver, language
from .tensors import ADDRESS, LOCKED, MockTensor, apart_on_gpu, array_types, elements, locked_types, reader
from .tools.tensor_descriptor import TensorDescriptor

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "debug", "check", "machine", "threads", "stream")
_CHECK = os.environ.get("TENON_CHECK", "0") == "1"
_GRID = struct.Struct("3q").pack

# ---- arguments -------------------------------------------------------------------------------------------------------------


def _element_name(v):
    """The language's name of an element type of NumPy or PyTorch; None: it is none."""
    if isinstance(v, numpy.dtype) or (isinstance(v, type) and issubclass(v, numpy.generic)):
        name = str(numpy.dtype(v))
    elif type(v).__module__ == "torch" and type(v).__name__ == "dtype":
        name = str(v).removeprefix("torch.")
    else:
        return None
    return {"bool": "int1", "float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}.get(name, name)


def literal(value):
    """A constant in Python's words, as the C API takes it."""
    if isinstance(value, language.constexpr):
        return literal(value.value)
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, float):
        value = float(value)
        return repr(value) if value == value and abs(value) != float("inf") else f"float('{value}')"
    if isinstance(value, language.dtype):
        return f"tl.{value.name}"
    if isinstance(value, (tuple, list)):
        return "(" + "".join(literal(v) + ", " for v in value) + ")"
    if isinstance(value, numpy.generic) and isinstance(value.item(), (bool, int, float)):
        return literal(value.item())
    name = _element_name(value)
    if name:
        return f"tl.{name}"
    raise TypeError(f"{value!r} of type {type(value).__name__} can't be a constant of a kernel; numbers, strings, None, element types and tuples of them can")


_PLAIN = frozenset((int, str, bool, type(None)))


def _constant(value):
    """Two entries of a key, equal only where the constants are the same: 1, 1.0 and True are not, nor are 0.0 and -0.0."""
    if isinstance(value, language.constexpr):
        value = value.value
        if value.__class__ in _PLAIN:
            return value.__class__, value
    if isinstance(value, _Callable):
        return JITFunction, value.base
    return "=" + literal(value), None


_MULTIPLE = tuple("" if v % 2 else f":{v & -v or 16}" for v in range(16))  # by the number's last four bits
_I32 = tuple(f"i32{m}" for m in _MULTIPLE)
_PROMISE = re.compile(":(16|8|4|2)$")


def _integer(v):
    """The text of an integer argument's type: constants of 1, divisibility by 16, 8, 4, 2."""
    if -0x80000000 <= v < 0x80000000:
        return "i32=1" if v == 1 else _I32[v & 15]
    if -0x8000000000000000 <= v < 0x8000000000000000:
        return "i64" + _MULTIPLE[v & 15]
    if 0 <= v < 0x10000000000000000:
        return "u64" + _MULTIPLE[v & 15]
    raise OverflowError(f"{v} does not fit 64 bits")


def _descriptor(v):
    text, pointer = _kinds[v.base.__class__](v.base)
    place, bar, text = text.rpartition("|")
    block = "x".join(str(operator.index(n)) for n in v.block_shape)
    return f"{place}{bar}desc<{text[1:].split(':')[0]}[{block}]>", (pointer, *map(operator.index, v.shape), *map(operator.index, v.strides))


def _scalar(v):
    """A scalar of NumPy: as the Python number it is."""
    item = v.item()
    if isinstance(item, (bool, int, float)):
        return argument(item)
    if isinstance(item, complex):
        raise TypeError(f"{v!r}: kernels take no complex numbers")
    return "f32", float(v)


class _Kinds(dict):
    """Class of an argument -> what gives the text of its type, and its value: a number, an address, a tuple of a descriptor's, None of a constant."""

    def __missing__(self, kind):
        constant = (type(None), str, tuple, language.constexpr, language.dtype)
        for base, of in (constant, lambda v: ("=" + literal(v), None)), (TensorDescriptor, _descriptor), (numpy.generic, _scalar), (float, lambda v: ("f32", float(v))):
            if issubclass(kind, base):
                break
        else:
            of = (lambda v: argument(operator.index(v))) if hasattr(kind, "__index__") and not hasattr(kind, "__dlpack__") else reader(kind)
        self[kind] = of
        return of


_kinds = _Kinds({int: lambda v: (_integer(v), v), bool: lambda v: ("i1", v), float: lambda v: ("f32", v)})


def argument(v):
    """Text of an argument's type, and its value."""
    return _kinds[v.__class__](v)


def _plain(text):
    """The type alone: no constant of 1, no divisibility."""
    return text if text[0] == "=" else _unaligned(text).removesuffix("=1")


def _unaligned(text):
    return text if text[0] == "=" else _PROMISE.sub("", text)


class _Parameter:
    def __init__(self, parameter, specialize, align):
        annotation = parameter.annotation
        self.name, self.default, self.specialize, self.align = parameter.name, parameter.default, specialize, align
        self.keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        self.packed = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        last = annotation.rpartition(".")[2].strip() if isinstance(annotation, str) else None
        self.constant = annotation is language.constexpr or last == "constexpr"
        name = annotation.name if isinstance(annotation, language.dtype) else last
        self.type = language.ARGUMENT_TYPES.get(name)  # of a number, where the annotation says it


# ---- the function that launches ----------------------------------------------------------------------------------------------

_LAUNCH = """
def {name}({parameters}):
    try:
{steps}
    except (TypeError, ValueError, OverflowError, BufferError) as _tn_error:
        _tn_blame(_tn_error, ({arguments}))
        raise
    for _tn_read, _tn_was, _ in _tn_seen:
        if _tn_read() is not _tn_was:
            _tn_changed()
    _tn_key = ({key}{apart}, )
    _tn_checked = _tn_always
    if _tn_options:
        _tn_key, _tn_checked = _tn_extend(_tn_key, _tn_options)
    _tn_kernel = _tn_kernels.get(_tn_key)
    if _tn_kernel is None:
        _tn_kernel = _tn_new(_tn_key)
    if _tn_grid.__class__ is not bytes:
        if _tn_grid is None:
            return _tn_kernel
        _tn_grid = _tn_pack_grid(_tn_grid({{**{named}, **_tn_options}}))
    if _tn_checked:
        _tn_check(_tn_kernel, _tn_grid, ({values}), ({arguments}))
    elif _tn_kernel.gpu is not None:
        _tn_run_on_gpu(_tn_kernel, _tn_grid, _tn_kernel.pack({values}), _tn_options)
    else:
        _tn_status = _tn_run(_tn_kernel.handle, _tn_grid, _tn_kernel.pack({values}), _tn_kernel.count)
        if _tn_status:
            _tn_fail(_tn_status)
    return _tn_kernel
"""
_TENSOR_OR_NUMBER = """\
    _tn_c = {name}.__class__
    if _tn_c is _tn_array:
        v{i} = _tn_at(_tn_id({name}) + {address}).value or 0
        k{i} = (_tn_types if {name}.flags.writeable else _tn_locked)[{name}.dtype][not v{i} & 15]
    elif _tn_c is int:
        v{i} = {name}
        k{i} = _tn_i32[v{i} & 15] if v{i} != 1 and -2147483648 <= v{i} <= 2147483647 else _tn_integer(v{i})
    else:
        k{i}, v{i} = _tn_kinds[_tn_c]({name})"""
_CONSTANT = """\
    k{i} = {name}.__class__
    v{i} = {name}
    if k{i} not in _tn_plain_classes:
        k{i}, v{i} = _tn_constant({name})"""


def _step(i, p):
    if p.constant:
        return _CONSTANT.format(i=i, name=p.name)
    if p.type:
        return f"    k{i}, v{i} = '{p.type}', {'float' if 'f' in p.type else '_tn_index'}({p.name})"
    if not p.specialize or not p.align:
        return f"    k{i}, v{i} = _tn_kinds[{p.name}.__class__]({p.name})\n    k{i} = {'_tn_unaligned' if p.specialize else '_tn_plain'}(k{i})"
    return _TENSOR_OR_NUMBER.format(i=i, name=p.name, address=ADDRESS)


def _make_launch(function):
    params = function.params
    for p in params:
        if p.packed:
            raise TypeError(f"{function.name}: a kernel that is launched has a fixed number of parameters, found *{p.name}")
    scope = {"_tn_always": _CHECK, "_tn_apart": apart_on_gpu, "_tn_array": numpy.ndarray, "_tn_at": ctypes.c_void_p.from_address, "_tn_check": check, "_tn_constant": _constant,
             "_tn_blame": function._blame, "_tn_changed": function._changed, "_tn_locked": locked_types, "_tn_seen": function._seen, "_tn_extend": function._extend, "_tn_fail": _fail, "_tn_i32": _I32, "_tn_id": id, "_tn_index": operator.index, "_tn_integer": _integer, "_tn_kernels":
             function._kernels, "_tn_kinds": _kinds, "_tn_new": function._new, "_tn_pack_grid": pack_grid, "_tn_plain": _plain, "_tn_plain_classes": _PLAIN,
             "_tn_run": c.launch, "_tn_run_on_gpu": run_on_gpu, "_tn_types": array_types, "_tn_unaligned": _unaligned}
    parameters = ["_tn_grid", "/"]
    for i, p in enumerate(params):
        if p.keyword and "*" not in parameters:
            parameters.append("*")
        scope[f"_tn_default_{i}"] = p.default
        parameters.append(p.name if p.default is inspect.Parameter.empty else f"{p.name}=_tn_default_{i}")
    values = "".join(f"v{i}, " for i, p in enumerate(params) if not p.constant)
    tensors = [i for i, p in enumerate(params) if not p.constant and not p.type]
    apart = f"k{tensors[0]}[0] == 'c' and _tn_apart(({''.join(f'{params[i].name}, ' for i in tensors)}))" if tensors else "False"  # 'cuda:0|*f32'
    text = _LAUNCH.format(name=function.name, parameters=", ".join([*parameters, "**_tn_options"]), steps=textwrap.indent("\n".join(_step(i, p) for i, p in enumerate(params)) or "    pass", "    "),
                          key="".join(f"k{i}, v{i}, " if p.constant else f"k{i}, " for i, p in enumerate(params)), values=values,
                          apart=apart, named="{" + ", ".join(f"'{p.name}': {p.name}" for p in params) + "}", arguments="".join(f"{p.name}, " for p in params))
    exec(compile(text, f"<launch of {function.name}>", "exec"), scope)
    return scope[function.name]


_ONES = {1: (1, 1), 2: (1,), 3: ()}


def pack_grid(grid):
    """A grid's sizes as the C API takes them; what is computed from the arguments stays a function."""
    if grid.__class__ is not tuple:
        if callable(grid):
            return grid
        grid = tuple(grid) if hasattr(grid, "__iter__") else (grid,)
    try:
        return _GRID(*grid, *_ONES[len(grid)])
    except (KeyError, struct.error):
        raise TypeError(f"a grid has one to three sizes, all integers; found {grid!r}") from None


def _fail(status):
    raise c.Error(c.lib.tn_kernel_error().decode(errors="replace"), c.STATUS[status])


_streams = {}  # as ctypes takes them


def run_on_gpu(kernel, grid, values, options):
    """Puts the launch into PyTorch's stream, or the one that the launch names. Waits only for kernels with checks, to say which one failed."""
    stream = options.get("stream") if options else None
    if stream is None:
        stream = _cuda.current_stream(kernel.gpu)
    pointer = _streams.get(stream)
    if pointer is None:  # the table grows by a stream that nobody used before
        pointer = _streams[stream] = c.c_void_p(getattr(stream, "cuda_stream", stream))
    status = c.launch_on(kernel.handle, grid, values, kernel.count, pointer)
    if not status and kernel.waits:
        status = c.lib.tn_kernel_wait(kernel.handle, pointer)
    if status:
        _fail(status)


def check(kernel, grid, values, arguments):
    """Runs the kernel slowly with every access checked; prints warnings, raises errors."""
    if kernel.gpu is not None:
        raise c.Error(f"{kernel.name}: a launch with check=True runs on the CPU and takes tensors in host memory", "unsupported")
    counts = []
    for text, v in zip(kernel.texts, arguments):
        if text.startswith("desc"):
            counts += [elements(v.base)] + [-1] * (2 * len(v.shape))
        elif text[0] != "=":
            counts.append(elements(v) if text[0] == "*" else -1)
    with c.lock:
        status = c.lib.tn_kernel_check(c.session, kernel.handle, grid, kernel.pack(*values), len(counts), struct.pack(f"{len(counts)}q", *counts), None)
        found = c.diagnostics()
    for severity, text in found:
        if severity == 1:
            print(text, file=sys.stderr)
    errors = [text for severity, text in found if severity == 2]
    if status or errors:
        raise c.Error("\n".join(errors) or c.STATUS[status], c.STATUS[status])


# ---- compiled kernels ----------------------------------------------------------------------------------------------------------


def _packer(texts):
    """What makes bytes of launch values, eight a value: tuples are a descriptor's, those of constants are left out."""
    kinds, nested = "", False
    for text in texts:
        if text.startswith("desc"):
            axes = text.count("x", text.index("[")) + 1
            kinds, nested = kinds + "Q" + "q" * (2 * axes), True
        elif text[0] != "=":
            kinds += "Q" if text[0] in "*u" else "d" if text[0] in "fb" else "q"
    pack = struct.Struct(kinds).pack
    given = [i for i, text in enumerate(texts) if text[0] != "="]
    if nested:
        return lambda *values: pack(*(x for i in given for x in (values[i] if values[i].__class__ is tuple else (values[i],))))
    if len(given) == len(texts):
        return pack
    if len(given) < 2:
        return lambda *values: pack(*(values[i] for i in given))
    pick = operator.itemgetter(*given)
    return lambda *values: pack(*pick(values))


class _Module:
    """A function's text and those of all that it calls."""

    def __init__(self, function):
        handle = c.c_void_p()
        c.check(c.lib.tn_module_new(c.session, ctypes.byref(handle)))
        self.handle = handle.value
        weakref.finalize(self, c.lib.tn_module_free, self.handle).atexit = False
        self.units = {}  # function -> number of its text
        self._seen = function._seen
        self.unit = function._add(self.handle, self.units, self._seen)

    def function(self, function):
        """A name for a function that is given as a constant."""
        number = function._add(self.handle, self.units, self._seen)
        name = f"<{function.name} {number}>"
        c.check(c.lib.tn_module_bind_function(self.handle, self.unit, name.encode(), number, function.name.encode()))
        return name


class Compiled:
    """One kernel for given types and constants. asm["tile"], "loop", "llvm", "asm", "obj": the compiler's stages. notes: what the compiler said, one text a note."""

    def __init__(self, function, texts, options):
        self.name, self.texts, self._module, self._options, self._function = function.name, texts, function._texts(), options, function
        handle = c.c_void_p()
        status = c.lib.tn_kernel_compile(c.session, self._module.handle, self._module.unit, self.name.encode(), c.texts(texts), len(texts), ctypes.byref(options),
                                         ctypes.byref(handle))
        c.check(status)
        said = c.diagnostics()
        for severity, text in said:
            if severity == 3:  # tl.static_print
                print(text)
        self.notes = [text for severity, text in said if severity != 3]
        self.handle = handle
        weakref.finalize(self, c.lib.tn_compiled_kernel_free, handle.value).atexit = False
        info = c.KernelInfo()
        c.lib.tn_kernel_describe(handle, ctypes.byref(info))
        self.num_warps, self.num_stages, self.cached, self.pointer_accesses = info.num_warps, info.num_stages, bool(info.cached), info.pointer_accesses
        self.gpu, self.waits = (info.device, bool(options.debug)) if info.device >= 0 else (None, False)
        _cuda.in_use |= self.gpu is not None
        self.n_regs, self.n_spills, self.shared, self.machine = info.registers, info.spill_bytes, info.shared_bytes, info.machine.decode()
        self.metadata = types.SimpleNamespace(name=self.name, num_warps=info.num_warps, num_stages=info.num_stages, shared=info.shared_bytes)
        self.written = info.written
        self.phase_seconds = info.front_seconds, info.lower_seconds, info.emit_seconds, info.link_seconds
        self.compile_seconds = sum(self.phase_seconds)
        self.asm = _Stages(self)
        self.count = c.c_size_t(info.nvalues)
        self.pack = _packer([text for p, text in zip(function.params, texts) if not p.constant])


    def __getitem__(self, grid):
        """Launches with the options that it was compiled with; for other types another kernel is compiled."""
        return functools.partial(self._function.run, grid=grid, **self.options)

    def _init_handles(self):
        """Triton loads a kernel so before it says what it takes; here it is loaded."""


class _Stages(dict):
    """kernel.asm["tile"]: a stage's text, made when it is asked for. "ptx" is the assembly of a GPU's, "cubin" its object."""

    def __init__(self, compiled):
        super().__init__()
        self.compiled = weakref.proxy(compiled)

    def __missing__(self, stage):
        k = self.compiled
        if k.gpu is not None and stage in ("ptx", "cubin"):
            self[stage] = self["asm" if stage == "ptx" else "obj"]
            return self[stage]
        if stage not in c.STAGES[1:]:
            raise KeyError(f"{stage}: the stages are {', '.join(c.STAGES[1:])}")
        out, size = c.c_void_p(), c.c_size_t()
        with c.lock:
            c.check(c.lib.tn_kernel_emit(c.session, k._module.handle, k._module.unit, k.name.encode(), c.texts(k.texts), len(k.texts), ctypes.byref(k._options),
                                         c.STAGES.index(stage), ctypes.byref(out), ctypes.byref(size)))
            c.diagnostics()
        data = ctypes.string_at(out.value, size.value)
        c.lib.tn_free(out)
        self[stage] = data if stage == "obj" else data.decode()
        return self[stage]


# ---- @triton.jit -----------------------------------------------------------------------------------------------------------------


def _source(fn):
    """File, lines from the decorators on, number of the first."""
    file = inspect.getsourcefile(fn) or fn.__code__.co_filename
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError):
        raise c.Error(f"{file}:{fn.__code__.co_firstlineno}: the text of {fn.__qualname__} can't be found; a kernel is compiled from its text, so it must be in a file "
                      "(not in exec or eval)", "unsupported") from None
    return file, lines, first


class _Callable:
    """What can be launched as kernel[grid](…)."""

    def __getitem__(self, grid):
        return functools.partial(self.run, grid=grid)

    def __call__(self, *arguments, **named):
        raise RuntimeError(f"{self.name} runs on a grid: {self.name}[grid](…); inside another @triton.jit function it is called as it is")


class JITFunction(_Callable):
    def __init__(self, fn, do_not_specialize=None, do_not_specialize_on_alignment=None, debug=False):
        if not isinstance(fn, types.FunctionType):
            raise TypeError(f"@triton.jit takes a Python function, found {fn!r}")
        self.fn, self.name, self.debug = fn, fn.__name__, debug
        functools.update_wrapper(self, fn)
        found = list(inspect.signature(fn).parameters.values())

        def named(which):
            return {p if isinstance(p, str) else found[p].name for p in which or ()}

        fixed, unaligned = named(do_not_specialize), named(do_not_specialize_on_alignment)
        self.params = [_Parameter(p, p.name not in fixed, p.name not in unaligned) for p in found]
        self.arg_names = [p.name for p in self.params]
        self.file, self._lines, self._first = _source(fn)
        self._kernels, self._module, self._launch = {}, None, None
        self._seen = []  # of names outside whose values the code has: what reads one, the value then, the name

    @property
    def base(self):
        return self

    @property
    def src(self):
        return "".join(self._lines)

    def __getitem__(self, grid):
        return functools.partial(self._launch or self._launcher(), pack_grid(grid))

    def _launcher(self):
        self._launch = _make_launch(self)
        return self._launch

    def run(self, *arguments, grid, warmup=False, **named):
        return (self._launch or self._launcher())(None if warmup else pack_grid(grid), *arguments, **named)

    def warmup(self, *arguments, grid=None, **named):
        """Compiles for such arguments, launches nothing. An element type of PyTorch stands for a tensor of it."""
        return self.run(*map(MockTensor.of, arguments), grid=grid, warmup=True, **{name: MockTensor.of(v) for name, v in named.items()})

    def _extend(self, key, options):
        """The key with a launch's options, and whether the launch is a checked one."""
        for name in options:
            if name not in _OPTIONS:
                raise TypeError(f"{self.name}() got an unexpected keyword argument '{name}'; its parameters are {', '.join(self.arg_names)}, and options are {', '.join(_OPTIONS)}")
        checked = _CHECK
        if "check" in options or "stream" in options:
            options = dict(options)
            options.pop("stream", None)
            checked = bool(options.pop("check", checked))
        return (key + (tuple(options.items()),) if options else key), checked

    def _changed(self):
        """Names whose values the compiled code has must still have them: Python's rule would be the value of now, the code's is the value of then."""
        for i, (read, was, name) in enumerate(self._seen):
            now = read()
            if now is was:
                continue
            if isinstance(was, _Callable) or isinstance(now, _Callable):
                raise RuntimeError(f"{self.name}: '{name}' is another function now than when the kernel was compiled; define the kernel anew")
            if _constant(now) != _constant(was):
                raise RuntimeError(f"{self.name}: '{name}' has changed since the kernel was compiled, from {was!r} to {now!r}; define the kernel anew, or give it the value as an argument")
            self._seen[i] = read, now, name

    def _blame(self, error, arguments):
        """Raises anew what an argument raised, with the argument's name."""
        for p, v in zip(self.params, arguments):
            try:
                _constant(v) if p.constant else (float if "f" in p.type else operator.index)(v) if p.type else argument(v)
            except type(error) as same:
                raise type(error)(f"{self.name}: argument '{p.name}': {same}") from None

    def _new(self, key):
        with c.lock:
            kernel = self._kernels.get(key)  # of another thread that was first
            if kernel is None:
                kernel = self._kernels[key] = self._compile(key)
            return kernel

    def _writable(self, key):
        """The kernel of a key with arrays that nobody may write, if it writes none of them."""
        unlocked = tuple(text.removeprefix(LOCKED) if text.__class__ is str else text for text in key)
        kernel, entries, value = self._new(unlocked), iter(key), 0
        for p in self.params:
            text = next(entries)
            if p.constant:
                next(entries)
                continue
            if text.startswith(LOCKED) and kernel.written >> value & 1:
                raise TypeError(f"{self.name}: argument '{p.name}' is a read-only array, and the kernel stores to it")
            value += 0 if text[0] == "=" else 1 + 2 * (text.count("x", text.index("[")) + 1) if "desc<" in text else 1
        return kernel

    def _compile(self, key):
        if any(text.__class__ is str and text.startswith(LOCKED) for text in key):
            return self._writable(key)
        entries, texts, places = iter(key), [], {}
        for p in self.params:
            text = next(entries)
            if text.__class__ is str and text[0] != "=":
                place, _, text = text.rpartition("|")
                if place or text[0] == "*" or text.startswith("desc"):
                    places.setdefault(place, p.name)
            if p.constant:
                value = next(entries)
                text = text if isinstance(text, str) else "=" + (self._texts().function(value) if text is JITFunction else literal(value))
            texts.append(text)
        apart, value = next(entries), dict(next(entries, ()))
        machine = self._machine(value.get("machine"), places)
        debug = value.get("debug") or self.debug or os.environ.get("TRITON_DEBUG", "0") == "1"
        kernel = Compiled(self, texts, c.KernelOptions(machine=machine.encode() if machine else None, threads=value.get("threads") or 0, num_warps=value.get("num_warps") or 0,
                                                     num_stages=value.get("num_stages") or 0, debug=bool(debug), apart=apart,
                                                     strict=not value.get("enable_fp_fusion", True)))
        kernel.options = value
        return kernel

    def _machine(self, machine, places):
        """The machine that a launch needs: of the one GPU whose memory its tensors are in, else the CPU, or what the launch names."""
        if len(places) > 1:
            found = ", ".join(f"{name} is {'on ' + place if place else 'in host memory'}" for place, name in places.items())
            raise TypeError(f"{self.name}: {found}; all tensors of a launch lie on one device")
        place = next(iter(places), "")
        if not place or not machine:
            return machine or place
        if not machine.startswith(("sm_", "cuda")):
            raise TypeError(f"{self.name}: {places[place]} is on {place}, and machine '{machine}' is a CPU")
        return machine if ":" in machine else machine + place.removeprefix("cuda")

    # The text

    def _texts(self):
        if self._module is None:
            self._module = _Module(self)
        return self._module

    def _outer(self):
        """Names of the function that are not its own, with what they stand for, and what reads that again."""
        codes, names, closure = [self.fn.__code__], {}, {}
        for name, cell in zip(self.fn.__code__.co_freevars, self.fn.__closure__ or ()):
            try:
                closure[name] = cell.cell_contents, functools.partial(getattr, cell, "cell_contents")
            except ValueError:  # not given yet
                pass
        while codes:
            code = codes.pop()
            codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
            names.update(dict.fromkeys((*code.co_names, *code.co_freevars)))  # co_names has attributes too
        if self.fn.__defaults__ or self.fn.__kwdefaults__:
            text = self.src
            tree = ast.parse("if 1:\n" + text if text[0].isspace() else text).body[0]
            arguments = (tree.body[0] if isinstance(tree, ast.If) else tree).args
            for default in (*arguments.defaults, *arguments.kw_defaults):
                names.update((node.id, None) for node in (ast.walk(default) if default else ()) if isinstance(node, ast.Name))
        scope = self.fn.__globals__
        found = {name: closure.get(name) or (scope[name], functools.partial(scope.get, name)) for name in names if name in closure or name in scope}
        for module in [v for v, _ in found.values() if isinstance(v, types.ModuleType) and not v.__name__.startswith((__package__, "triton."))]:
            for name in names:
                read = functools.partial(getattr, module, name, None)
                if isinstance(read(), (_Callable, language.constexpr)):
                    found[f"{module.__name__}.{name}"] = read(), read
        return found

    def _assigned(self, name, end):
        """The line before `end` that gives a global name its value; None: not found."""
        import linecache

        pattern = re.compile(rf"{re.escape(name)}\s*(:[^=]*)?=(?!=)")
        lines = linecache.getlines(self.file, self.fn.__globals__)
        return next((i + 1 for i in reversed(range(min(end, len(lines)))) if pattern.match(lines[i])), None)

    def _add(self, module, units, seen):
        """Adds the function's text and those of all that it names to the module; its number. Called with the lock held."""
        if self.fn in units:
            return units[self.fn]
        start = next((i for i, line in enumerate(self._lines) if re.match(rf"\s*def\s+{self.name}\b", line)), 0)
        begin, indent = self._first + start, re.match(r"\s*", self._lines[start])[0]
        annotations = self.fn.__globals__.get("__annotations__", {})
        above, imports, bound, functions = {begin - 1: ["@triton.jit"]}, [], {}, {}
        for name, (value, read) in self._outer().items():
            found, value = value, value.base if isinstance(value, _Callable) else value
            annotation = annotations.get(name) if self.fn.__globals__.get(name) is found else None
            if isinstance(value, JITFunction):
                functions[name] = value
            elif isinstance(value, language.constexpr) or annotation is language.constexpr or (isinstance(annotation, str) and annotation.split(".")[-1] == "constexpr"):
                bound[name] = literal(value)
            elif isinstance(value, (types.ModuleType, language.name)):
                path = (value.path if isinstance(value, language.name) else value.__name__).removeprefix("tenon.")
                parent, _, leaf = path.rpartition(".")
                imports.append(f"from {parent} import {leaf} as {name}" if parent else f"import {leaf} as {name}")
            elif isinstance(value, types.FunctionType) and value.__module__ == __package__:
                imports.append(f"from triton import {value.__name__} as {name}")
            elif isinstance(value, language.dtype) or _element_name(value):
                bound[name] = literal(value)
            elif isinstance(value, types.FunctionType):
                above[min(above) - 1] = [f"def {name}(): pass"]  # refused by name where it is called
            else:  # refused by name where it is read
                above.setdefault(self._assigned(name, begin - 2) or begin - 2, []).append(f"{name} = 0")
            if name in bound or name in functions:
                seen.append((read, found, name))
        if imports:
            above[min(min(above), 1) - 1] = imports
        first = min(above)
        text = "".join(indent + "; ".join(above.get(line, ())) + "\n" for line in range(first, begin)) + "".join(self._lines[start:])
        data = text.encode()
        unit = c.c_int()
        c.check(c.lib.tn_module_add(module, self.file.encode(), first, data, len(data), ctypes.byref(unit)))
        units[self.fn] = unit.value
        for name, text in bound.items():
            c.check(c.lib.tn_module_bind(module, unit.value, name.encode(), text.encode()))
        for name, function in functions.items():
            other = function._add(module, units, seen)
            c.check(c.lib.tn_module_bind_function(module, unit.value, name.encode(), other, function.name.encode()))
        return unit.value


def jit(fn=None, *, version=None, repr=None, launch_metadata=None, do_not_specialize=None, do_not_specialize_on_alignment=None, debug=False, noinline=False):
    """Makes a kernel, or a function that kernels call, of a Python function in Triton's language. As @triton.jit or @triton.jit(…); names or numbers of
    parameters in do_not_specialize: no code of their own for 1 and for multiples of 16, 8, 4 and 2. debug: tl.device_assert is checked."""
    if fn is None:
        return functools.partial(jit, do_not_specialize=do_not_specialize, do_not_specialize_on_alignment=do_not_specialize_on_alignment, debug=debug)
    return fn if isinstance(fn, JITFunction) else JITFunction(fn, do_not_specialize, do_not_specialize_on_alignment, debug)


# ---- autotune, heuristics ---------------------------------------------------------------------------------------------------------


class Config:
    """One choice of constants for autotune. pre_hook is called with the arguments by name before each launch."""

    def __init__(self, kwargs, num_warps=4, num_stages=3, num_ctas=1, maxnreg=None, pre_hook=None, ir_override=None):
        self.kwargs, self.num_warps, self.num_stages, self.num_ctas, self.maxnreg, self.pre_hook = dict(kwargs), num_warps, num_stages, num_ctas, maxnreg, pre_hook

    def all_kwargs(self):
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}

    def __str__(self):
        return ", ".join(f"{k}: {v}" for k, v in self.all_kwargs().items())

    def __repr__(self):
        return f"Config({self})"


class _Around(_Callable):
    """A kernel with something around its launches."""

    def __init__(self, fn):
        self.fn, self.name, self.arg_names = fn, fn.name, fn.arg_names
        functools.update_wrapper(self, self.base.fn)

    @property
    def base(self):
        """The JITFunction inside."""
        return self.fn.base


class Autotuner(_Around):
    """Measures every configuration at the first launch with new values of `key`, and keeps the fastest. cache: key -> Config; timings: of the last time,
    Config -> milliseconds (median, 0.2 and 0.8 quantiles)."""

    def __init__(self, fn, configs, key, prune_configs_by=None, reset_to_zero=None, restore_value=None, pre_hook=None, post_hook=None, do_bench=None, warmup=None, rep=None,
                 use_cuda_graph=False, cache_results=False):
        super().__init__(fn)
        self.configs, self.keys = list(configs) or [Config({})], list(key)
        self.reset_to_zero, self.restore_value = list(reset_to_zero or ()), list(restore_value or ())
        self.prune_by = dict(prune_configs_by or {})
        self.pre_hook, self.post_hook = pre_hook, post_hook
        if do_bench is None:
            from .testing import do_bench

            do_bench = functools.partial(do_bench, warmup=5 if warmup is None else warmup, rep=25 if rep is None else rep)
        self.do_bench = do_bench
        self.cache, self.timings, self.best_config = {}, {}, None

    def _reset(self, by_name):
        for n in self.reset_to_zero:
            by_name[n][...] = 0

    def _time(self, config, arguments, named, by_name, grid):
        kept = {n: _copy(by_name[n]) for n in self.restore_value}
        full = {**by_name, **config.all_kwargs()}

        def launch():
            if config.pre_hook:
                config.pre_hook(full)
            self._reset(by_name)
            if self.pre_hook:
                self.pre_hook(full)
            self.fn.run(*arguments, grid=grid, **named, **config.all_kwargs())
            if self.post_hook:
                self.post_hook(full, exception=None)

        try:
            return self.do_bench(launch, quantiles=(0.5, 0.2, 0.8))
        except c.Error as error:
            if self.post_hook:
                self.post_hook(full, exception=error)
            if error.status in ("unsupported", "no memory") or "static assertion failed" in str(error):  # this configuration is none for these arguments
                return [float("inf")] * 3
            raise
        finally:
            for n, value in kept.items():
                by_name[n][...] = value

    def _pruned(self, arguments, named):
        configs, given = self.configs, dict(zip(self.arg_names, arguments))
        if self.prune_by.get("early_config_prune"):
            configs = self.prune_by["early_config_prune"](configs, given, **named)
            if not configs:
                raise ValueError(f"{self.name}: early_config_prune left none of autotune's configurations")
        model, most = self.prune_by.get("perf_model"), self.prune_by.get("top_k", 1.0)
        if model:
            most = max(1, int(len(self.configs) * most)) if isinstance(most, float) and most <= 1 else most
            configs = sorted(configs, key=lambda each: model(**given, **named, **each.all_kwargs()))[:most]
        return configs

    def _tune(self, arguments, named, by_name, grid):
        configs = self._pruned(arguments, named) if len(self.configs) > 1 else self.configs
        if len(configs) == 1:
            return configs[0]
        self.timings = {each: self._time(each, arguments, named, by_name, grid) for each in configs}
        config = min(self.timings, key=lambda each: self.timings[each][0])
        if self.timings[config][0] == float("inf"):
            self.fn.run(*arguments, grid=grid, **named, **config.all_kwargs())  # says what is wrong
        self._reset(by_name)
        if self.pre_hook:
            self.pre_hook({**by_name, **config.all_kwargs()}, reset_only=True)
        return config

    def run(self, *arguments, grid, warmup=False, **named):
        by_name = {**dict(zip(self.arg_names, arguments)), **named}
        values = [by_name.get(n) for n in self.keys]  # of a tensor counts only its element type, as of all tensors
        key = tuple([None if hasattr(v, "__setitem__") else v for v in values] + [(getattr(v, "dtype", None), getattr(v, "device", None)) for v in by_name.values()])
        config = None if warmup else self.cache.get(key)
        if config is None:
            twice = [n for n in named if any(n in each.kwargs for each in self.configs)]
            if twice:
                raise ValueError(f"{self.name}: autotune's configurations give {', '.join(twice)}; a launch can't")
            if warmup:
                return [self.fn.run(*arguments, grid=grid, warmup=True, **named, **each.all_kwargs()) for each in self._pruned(arguments, named)]
            if _CHECK or named.get("check"):  # times of checked runs say nothing
                config = self._pruned(arguments, named)[0]
            else:
                config = self.cache[key] = self._tune(arguments, named, by_name, grid)
        self.best_config, given = config, config.all_kwargs()
        if config.pre_hook:
            config.pre_hook({**by_name, **given})
        return self.fn.run(*arguments, grid=grid, **named, **given)

    def warmup(self, *arguments, grid=None, **named):
        """Compiles all configurations; the kernels."""
        return self.run(*map(MockTensor.of, arguments), grid=grid, warmup=True, **named)


def _copy(v):
    return v.clone() if hasattr(v, "clone") else v.copy()


def autotune(configs, key, **options):
    """Decorator over @triton.jit: the constants come from the fastest of `configs`, measured anew when an argument named in `key` changes, or the element type
    of a tensor. reset_to_zero, restore_value: names of tensors that measuring must not change. prune_configs_by: a dict with early_config_prune(configs,
    arguments, **named) and perf_model(**all) with top_k. do_bench(fn, quantiles): another way to measure. warmup, rep: milliseconds."""
    return lambda fn: Autotuner(fn, configs, key, **options)


class Heuristics(_Around):
    """Gives a kernel constants that are computed from the arguments."""

    def __init__(self, fn, values):
        super().__init__(fn)
        self.values = values

    def run(self, *arguments, grid, warmup=False, **named):
        by_name = {**dict(zip(self.arg_names, arguments)), **named}
        for name, rule in self.values.items():
            named[name] = by_name[name] = rule(by_name)
        return self.fn.run(*arguments, grid=grid, warmup=warmup, **named)

    def warmup(self, *arguments, grid=None, **named):
        return self.run(*map(MockTensor.of, arguments), grid=grid, warmup=True, **named)


def heuristics(values):
    """Decorator over @triton.jit: each named constant is what its function makes of the arguments, a dict by name."""
    return lambda fn: Heuristics(fn, values)
