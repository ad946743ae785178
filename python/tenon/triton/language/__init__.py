"""Names of the language, for the Python side of a kernel's file: annotations, constants, element types. What they mean inside a kernel, Tenon's own front end
knows; here a function of the language is only a name."""


class dtype:
    """An element type."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"triton.language.{self.name}"

    def __eq__(self, other):
        return isinstance(other, dtype) and other.name == self.name

    def __hash__(self):
        return hash(self.name)


_NAMES = ("int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 float8e4nv float8e5 float8e4b8 float8e4b15 float8e5b16 void"
          " pi32_t").split()
globals().update({name: dtype(name) for name in _NAMES})
# What an annotation of a number parameter may be called: the language's name, or the short one.
ARGUMENT_TYPES = {"int1": "i1", "u1": "i1", "float16": "f16", "fp16": "f16", "bfloat16": "bf16", "bf16": "bf16", "float32": "f32", "fp32": "f32", "float64": "f64",
                  "fp64": "f64"}
ARGUMENT_TYPES |= {name: f"{kind}{bits}" for bits in (8, 16, 32, 64) for kind, long in (("i", "int"), ("u", "uint")) for name in (f"{kind}{bits}", f"{long}{bits}")}


class constexpr:
    """A constant: as an annotation of a parameter, or around a global that kernels read."""

    def __init__(self, value):
        self.value = value.value if isinstance(value, constexpr) else value

    def __repr__(self):
        return f"constexpr[{self.value}]"

    def __index__(self):
        return self.value.__index__()

    def __bool__(self):
        return bool(self.value)

    def __eq__(self, other):
        return self.value == (other.value if isinstance(other, constexpr) else other)

    def __hash__(self):
        return hash(self.value)


def _operator(name):
    def apply(self, *others):
        result = getattr(self.value, name)(*(o.value if isinstance(o, constexpr) else o for o in others))
        return result if result is NotImplemented else constexpr(result)

    return apply


for _name in "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow and rand or ror xor rxor lshift rlshift rshift rrshift neg lt le gt ge".split():
    setattr(constexpr, f"__{_name}__", _operator(f"__{_name}__"))


class name:
    """A function or module of the language, as Python sees it outside kernels."""

    def __init__(self, path):
        self.__dict__["path"] = path

    def __repr__(self):
        return f"<{self.path}>"

    def __getattr__(self, attribute):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return name(f"{self.path}.{attribute}")

    def __call__(self, *arguments, **named):
        if self.path in ("triton.language.extern", "triton.language.core.extern"):  # a decorator: such functions are called by kernels as those with @triton.jit are
            from ..runtime import jit

            return jit(*arguments, **named)
        raise RuntimeError(f"{self.path} can only be called in a function with the decorator @triton.jit")


def __getattr__(attribute):
    if attribute.startswith("__"):
        raise AttributeError(attribute)
    return name(f"triton.language.{attribute}")
