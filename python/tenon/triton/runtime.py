"""@triton.jit, launches, autotune, heuristics.

A launch must cost microseconds. For each function a `bind` is made whose parameters are the kernel's own, so Python itself binds what a caller gives; it
returns a key, one entry a parameter, and the launch values. An entry of the key is the text that tn_kernel_compile takes for that parameter ("*f32:16",
"i32=1"), or type and value of a constant. Known keys go straight to the compiled kernel."""
import ctypes
import functools
import inspect
import os
import struct
import types

from .. import _library as c
from . import language
from .tensors import describe, elements
from .tools.tensor_descriptor import TensorDescriptor

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "debug", "check", "machine", "threads")
_GRID = struct.Struct("3q").pack


def literal(value):
    """A constant in Python's words, as the C API takes it."""
    if isinstance(value, language.constexpr):
        return literal(value.value)
    if value is None or isinstance(value, (bool, int, str)):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else f"float('{value}')"
    if isinstance(value, language.dtype):
        return f"tl.{value.name}"
    if isinstance(value, (tuple, list)):
        return "(" + "".join(literal(v) + ", " for v in value) + ")"
    name = str(getattr(value, "name", value))
    if type(value).__module__ == "torch" and name.startswith("torch."):
        return f"tl.{ {'bool': 'int1', 'float8_e4m3fn': 'float8e4nv', 'float8_e5m2': 'float8e5'}.get(name[6:], name[6:]) }"
    raise TypeError(f"{value!r} of type {type(value).__name__} can't be a constant of a kernel; numbers, strings, None, element types and tuples of them can")


def _integer(v):
    """The text of an integer argument's type: constants of 1, divisibility by 16."""
    if -0x80000000 <= v < 0x80000000:
        return "i32=1" if v == 1 else "i32:16" if not v & 15 else "i32"
    if -0x8000000000000000 <= v < 0x8000000000000000:
        return "i64" if v & 15 else "i64:16"
    if v < 0x10000000000000000:
        return "u64" if v & 15 else "u64:16"
    raise OverflowError(f"{v} does not fit 64 bits")


def argument(v):
    """Text of an argument's type, and its launch values."""
    kind = type(v)
    if kind is int:
        return _integer(v), (v if v < 0x8000000000000000 else v - 0x10000000000000000,)
    if kind is float:
        return "f32", (v,)
    if kind is bool:
        return "i1", (int(v),)
    if v is None:
        return "=None", ()
    if kind is TensorDescriptor:
        text, pointer = describe(v.base)
        block = "x".join(str(int(n)) for n in v.block_shape)
        return f"desc<{text[1:].split(':')[0]}[{block}]>", (pointer, *map(int, v.shape), *map(int, v.strides))
    if isinstance(v, language.constexpr):
        return "=" + literal(v), ()
    if hasattr(v, "__index__") and not hasattr(v, "__dlpack__"):
        return argument(v.__index__())
    if kind.__name__ in ("float32", "float16", "float64") and kind.__module__ == "numpy":
        return "f32", (float(v),)
    text, pointer = describe(v)
    return text, (pointer,)


_BIND = """
def bind({parameters}):
    {constants}
    {steps}
    return ({key}), ({values}), {named}
"""


class _Parameter:
    def __init__(self, parameter, specialize):
        annotation = parameter.annotation
        self.name, self.default, self.specialize = parameter.name, parameter.default, specialize
        self.constant = annotation is language.constexpr or (isinstance(annotation, str) and annotation.split(".")[-1] == "constexpr")


def _plain(text):
    """The type alone: no constant, no divisibility."""
    return text.split(":")[0].split("=1")[0] if text[0] != "=" else text


class Compiled:
    """One kernel for given types and constants."""

    def __init__(self, function, texts, options):
        self.name, self._function, self._texts, self._options = function.name, function, texts, options
        handle = c.c_void_p()
        with c.lock:
            module, unit = function._unit()
            status = c.lib.tn_kernel_compile(c.session, module, unit, function.name.encode(), c.texts(texts), len(texts), ctypes.byref(options),
                                             ctypes.byref(handle))
            try:
                c.check(status)
            finally:
                self.notes = [text for _, text in c.diagnostics()]
        self.handle = handle.value
        info = c.KernelInfo()
        c.lib.tn_kernel_describe(self.handle, ctypes.byref(info))
        self.nvalues, self.num_warps, self.num_stages, self.cached = info.nvalues, info.num_warps, info.num_stages, bool(info.cached)
        self.compile_seconds = info.front_seconds + info.lower_seconds + info.emit_seconds + info.link_seconds
        self.pointer_accesses = info.pointer_accesses
        self.asm = _Stages(self)
        self.pack = None  # made at the first launch, when the values' kinds are known

    def values(self, values):
        """The values as tn_kernel_value takes them, eight bytes each."""
        if self.pack is None:
            self.pack = struct.Struct("".join("d" if type(v) is float else "Q" if v >= 0x8000000000000000 else "q" for v in values)).pack
        try:
            return self.pack(*values)
        except struct.error:  # an address with its highest bit set, or not
            return struct.pack("".join("d" if type(v) is float else "Q" if v >= 0x8000000000000000 else "q" for v in values), *values)


class _Stages(dict):
    """kernel.asm["tile"]: a stage's text, made when it is asked for."""

    def __init__(self, compiled):
        super().__init__()
        self.compiled = compiled

    def __missing__(self, stage):
        k = self.compiled
        if stage not in c.STAGES[1:]:
            raise KeyError(f"{stage}: the stages are {', '.join(c.STAGES[1:])}")
        out, size = c.c_void_p(), c.c_size_t()
        with c.lock:
            module, unit = k._function._unit()
            c.check(c.lib.tn_kernel_emit(c.session, module, unit, k.name.encode(), c.texts(k._texts), len(k._texts), ctypes.byref(k._options), c.STAGES.index(stage),
                                         ctypes.byref(out), ctypes.byref(size)))
            c.diagnostics()
        data = ctypes.string_at(out.value, size.value)
        c.lib.tn_free(out)
        self[stage] = data if stage == "obj" else data.decode()
        return self[stage]


class _Launcher:
    __slots__ = ("function", "grid")

    def __init__(self, function, grid):
        self.function, self.grid = function, grid

    def __call__(self, *arguments, **named):
        return self.function.run(*arguments, grid=self.grid, **named)


class _Callable:
    """What can be launched as kernel[grid](…)."""

    def __getitem__(self, grid):
        return _Launcher(self, grid)

    def __call__(self, *arguments, **named):
        raise RuntimeError(f"{self.name} runs on a grid: {self.name}[grid](…); inside another @triton.jit function it is called as it is")


class JITFunction(_Callable):
    def __init__(self, fn, do_not_specialize=(), debug=False, **options):
        self.fn, self.name, self.debug = fn, fn.__name__, debug
        functools.update_wrapper(self, fn)
        signature = inspect.signature(fn)
        skip = {signature.parameters[p].name if isinstance(p, str) else list(signature.parameters)[p] for p in do_not_specialize or ()}
        self.params = [_Parameter(p, p.name not in skip) for p in signature.parameters.values()]
        self.arg_names = [p.name for p in self.params]
        self._kernels, self._module = {}, None
        self._bind = self._make_bind()

    def _make_bind(self):
        scope = {"argument": argument, "plain": _plain}
        parameters, constants, steps, key, values = [], [], [], [], []
        for i, p in enumerate(self.params):
            if p.default is inspect.Parameter.empty:
                parameters.append(p.name)
            else:
                scope[f"default_{i}"] = p.default
                parameters.append(f"{p.name}=default_{i}")
            if p.constant:
                constants.append(f"if {p.name}.__class__ is constexpr: {p.name} = {p.name}.value")
                key.append(f"({p.name}.__class__, {p.name})")
            else:
                steps.append(f"k{i}, v{i} = argument({p.name})" + ("" if p.specialize else f"; k{i} = plain(k{i})"))
                key.append(f"k{i}")
                values.append(f"*v{i}")
        if any(p.default is not inspect.Parameter.empty for p in self.params):  # Python wants defaults last; the kernel's order is kept by naming
            seen = False
            for i, text in enumerate(parameters):
                seen |= "=" in text
                if seen and "=" not in text:
                    raise TypeError(f"{self.name}: parameter {text} without a default follows one with a default")
        scope["constexpr"] = language.constexpr
        named = "{" + ", ".join(f"'{p.name}': {p.name}" for p in self.params) + "}"
        text = _BIND.format(parameters=", ".join(parameters), constants="\n    ".join(constants) or "pass", steps="\n    ".join(steps) or "pass",
                            key="".join(k + ", " for k in key), values="".join(v + ", " for v in values), named="lambda: " + named)
        exec(compile(text, f"<launch of {self.name}>", "exec"), scope)
        return scope["bind"]

    def _globals(self):
        """Names that the function's code uses, with what they stand for."""
        code, found = self.fn.__code__, {}
        closure = dict(zip(code.co_freevars, (cell.cell_contents for cell in self.fn.__closure__ or ())))
        names = list(code.co_names) + list(code.co_freevars)
        for constant in code.co_consts:  # comprehensions
            if isinstance(constant, types.CodeType):
                names += constant.co_names
        for name in names:
            if name in closure:
                found[name] = closure[name]
            elif name in self.fn.__globals__:
                found[name] = self.fn.__globals__[name]
        return found

    def _add(self, module, units):
        """Adds the function's text and those of all that it names to the module; its number. Called with the lock held."""
        if self.fn in units:
            return units[self.fn]
        lines, first = inspect.getsourcelines(self.fn)
        head, functions = [], {}
        for name, value in self._globals().items():
            value = getattr(value, "base", value) if isinstance(value, (Autotuner, Heuristics)) else value
            if isinstance(value, JITFunction):
                functions[name] = value
            elif isinstance(value, (types.ModuleType, language.name)):
                path = value.path if isinstance(value, language.name) else value.__name__.removeprefix("tenon.")
                if path.split(".")[0] == "triton":
                    parent, _, leaf = path.rpartition(".")
                    head.append(f"from {parent} import {leaf} as {name}" if parent else f"import {leaf} as {name}")
            elif isinstance(value, language.constexpr):
                head.append(f"{name}: tl.constexpr = {literal(value)}")
            elif isinstance(value, language.dtype):
                head.append(f"from triton.language import {value.name} as {name}")
            elif isinstance(value, (bool, int, float, str)):
                head.append(f"{name} = {literal(value)}")
        text = "".join(lines).expandtabs()
        indent = len(text) - len(text.lstrip(" "))
        source = "".join(" " * indent + line + "\n" for line in head) + text
        data = source.encode()
        unit = c.c_int()
        c.check(c.lib.tn_module_add(module, (inspect.getsourcefile(self.fn) or "<text>").encode(), first - len(head), data, len(data), ctypes.byref(unit)))
        units[self.fn] = unit.value
        for name, function in functions.items():
            other = function._add(module, units)
            c.check(c.lib.tn_module_bind_function(module, unit.value, name.encode(), other, function.name.encode()))
        return unit.value

    def _unit(self):
        if self._module is None:
            handle = c.c_void_p()
            c.check(c.lib.tn_module_new(c.session, ctypes.byref(handle)))
            self._module = handle.value, self._add(handle.value, {})
        return self._module

    def _compile(self, key, options):
        texts = [k if isinstance(k, str) else "=" + literal(k[1]) for k in key]
        value = dict(options)
        machine = value.get("machine")
        return Compiled(self, texts, c.KernelOptions(machine=machine.encode() if machine else None, threads=value.get("threads") or 0,
                                                     num_warps=value.get("num_warps") or 0, num_stages=value.get("num_stages") or 0,
                                                     debug=bool(value.get("debug") or self.debug or os.environ.get("TRITON_DEBUG", "0") == "1")))

    def prepare(self, arguments, named):
        """The compiled kernel for these arguments, its launch values, and a dict of all arguments by name when called."""
        options = ()
        for name in _OPTIONS:
            if name in named and name not in self.arg_names:
                options += ((name, named.pop(name)),)
        key, values, by_name = self._bind(*arguments, **named)
        full = (key, options) if options else key
        kernel = self._kernels.get(full)
        if kernel is None:
            kernel = self._kernels[full] = self._compile(key, options)
        return kernel, values, by_name, options

    def run(self, *arguments, grid, warmup=False, **named):
        kernel, values, by_name, options = self.prepare(arguments, named)
        if warmup:
            return kernel
        if callable(grid):
            grid = grid(by_name())
        grid = (grid,) if type(grid) is int else grid
        size = _GRID(*grid, *(1,) * (3 - len(grid)))
        if options and dict(options).get("check") or _CHECK:
            check(kernel, size, values, [by_name()[n] for n in self.arg_names])
        elif c.lib.tn_kernel_launch(kernel.handle, size, kernel.values(values), len(values)):
            raise c.Error(c.lib.tn_kernel_error().decode(), "usage")
        return kernel

    def warmup(self, *arguments, grid, **named):
        return self.run(*arguments, grid=grid, warmup=True, **named)


_CHECK = os.environ.get("TENON_CHECK", "0") == "1"


def check(kernel, grid, values, arguments):
    """Runs the kernel slowly with every access checked; prints warnings, raises errors."""
    counts = []
    for v in arguments:
        if type(v) is TensorDescriptor:
            counts += [elements(v.base)] + [-1] * (2 * len(v.shape))
        elif isinstance(v, (language.constexpr, language.dtype, str, tuple)) or v is None:
            continue
        else:
            counts.append(elements(v))
    counts = (counts + [-1] * len(values))[: len(values)] if len(counts) >= len(values) else [-1] * len(values)
    with c.lock:
        status = c.lib.tn_kernel_check(c.session, kernel.handle, grid, kernel.values(values), len(values), struct.pack(f"{len(values)}q", *counts), None)
        found = c.diagnostics()
    for severity, text in found:
        if severity == 1:
            print(text)
    errors = [text for severity, text in found if severity == 2]
    if status or errors:
        raise c.Error("\n".join(errors) or c.STATUS[status], c.STATUS[status])


def jit(fn=None, *, version=None, repr=None, launch_metadata=None, do_not_specialize=None, do_not_specialize_on_alignment=None, debug=False, noinline=False):
    """Makes a kernel, or a function that kernels call, of a Python function in Triton's language."""
    if fn is None:
        return lambda f: jit(f, do_not_specialize=do_not_specialize, debug=debug)
    return JITFunction(fn, do_not_specialize=do_not_specialize, debug=debug)


class Config:
    """One choice of constants for autotune. pre_hook is called with the arguments by name before each launch."""

    def __init__(self, kwargs, num_warps=4, num_stages=3, num_ctas=1, maxnreg=None, pre_hook=None, ir_override=None):
        self.kwargs, self.num_warps, self.num_stages, self.num_ctas, self.maxnreg, self.pre_hook = dict(kwargs), num_warps, num_stages, num_ctas, maxnreg, pre_hook

    def all_kwargs(self):
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}

    def __str__(self):
        return ", ".join(f"{k}: {v}" for k, v in self.all_kwargs().items())


class Autotuner(_Callable):
    """Measures every configuration at the first launch with new values of `key`, and keeps the fastest."""

    def __init__(self, fn, configs, key, reset_to_zero=None, restore_value=None, pre_hook=None, post_hook=None, prune_configs_by=None, do_bench=None, **unused):
        self.fn, self.configs, self.keys = fn, list(configs) or [Config({})], list(key)
        self.name, self.arg_names = fn.name, fn.arg_names
        self.reset_to_zero, self.restore_value = list(reset_to_zero or ()), list(restore_value or ())
        self.prune = (prune_configs_by or {}).get("early_config_prune")
        self.do_bench, self.pre_hook, self.post_hook = do_bench, pre_hook, post_hook
        self.cache, self.best_config = {}, None
        functools.update_wrapper(self, fn)

    @property
    def base(self):
        return getattr(self.fn, "base", self.fn)

    def _time(self, config, arguments, named, by_name, grid):
        from .testing import do_bench

        kept = {n: _copy(by_name[n]) for n in self.restore_value}

        def launch():
            for n in self.reset_to_zero:
                by_name[n][...] = 0
            if config.pre_hook:
                config.pre_hook({**by_name, **config.all_kwargs()})
            self.fn.run(*arguments, grid=grid, **{**named, **config.all_kwargs()})

        try:
            launch()
            return (self.do_bench or functools.partial(do_bench, warmup=5, rep=25))(launch, quantiles=(0.5, 0.2, 0.8))
        except c.Error as error:
            if error.status in ("unsupported", "no memory"):
                return [float("inf")] * 3
            raise
        finally:
            for n, value in kept.items():
                by_name[n][...] = value

    def run(self, *arguments, grid, **named):
        by_name = {**dict(zip(self.arg_names, arguments)), **named}
        key = tuple(_key(by_name.get(n)) for n in self.keys) + tuple(_key(v) for v in by_name.values() if hasattr(v, "dtype"))
        config = self.cache.get(key)
        if config is None:
            configs = self.prune(self.configs, by_name) if self.prune and len(self.configs) > 1 else self.configs
            if len(configs) == 1:
                config = configs[0]
            else:
                self.timings = {each: self._time(each, arguments, dict(named), by_name, grid) for each in configs}
                config = min(self.timings, key=lambda each: self.timings[each][0])
                if self.timings[config][0] == float("inf"):
                    raise c.Error(f"{self.name}: none of autotune's {len(configs)} configurations compiles", "unsupported")
                for n in self.reset_to_zero:
                    by_name[n][...] = 0
            self.cache[key] = config
        self.best_config = config
        if config.pre_hook:
            config.pre_hook({**by_name, **config.all_kwargs()})
        return self.fn.run(*arguments, grid=grid, **{**named, **config.all_kwargs()})

    def warmup(self, *arguments, grid, **named):
        return [self.fn.run(*arguments, grid=grid, warmup=True, **{**named, **each.all_kwargs()}) for each in self.configs]


def _key(v):
    return str(v.dtype) if hasattr(v, "dtype") else v


def _copy(v):
    return v.clone() if hasattr(v, "clone") else v.copy()


def autotune(configs, key, **options):
    """Decorator over @triton.jit: the constants come from the fastest of `configs`, measured anew when an argument named in `key` changes."""
    return lambda fn: Autotuner(fn, configs, key, **options)


class Heuristics(_Callable):
    def __init__(self, fn, values):
        self.fn, self.values, self.name, self.arg_names = fn, values, fn.name, fn.arg_names
        functools.update_wrapper(self, fn)

    @property
    def base(self):
        return getattr(self.fn, "base", self.fn)

    def run(self, *arguments, grid, **named):
        by_name = {**dict(zip(self.arg_names, arguments)), **named}
        for name, rule in self.values.items():
            named[name] = by_name[name] = rule(by_name)
        return self.fn.run(*arguments, grid=grid, **named)

    def warmup(self, *arguments, grid, **named):
        return self.run(*arguments, grid=grid, warmup=True, **named)


def heuristics(values):
    """Decorator over @triton.jit: each named constant is what its function makes of the arguments, a dict by name."""
    return lambda fn: Heuristics(fn, values)
