"""StableHLO tests (MLIR text, pretty and generic forms) as Tenon graphs.

convert(source) yields one Test a function that checks something. Its graph takes no inputs and returns, check by check,
what was computed and what was expected; calls are inlined. What the subset does not cover raises Unsupported, with the
operation's name. The MLIR grammar is read only as far as these tests use it.
"""
import re
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np


class Unsupported(Exception):
    pass


# ---- types and constants ---------------------------------------------------------------------------------------------

DTYPES = {  # MLIR name: (Tenon's, NumPy's)
    "i1": ("bool", np.bool_), "i4": ("i4", ml_dtypes.int4), "ui4": ("u4", ml_dtypes.uint4),
    "i8": ("i8", np.int8), "ui8": ("u8", np.uint8), "i16": ("i16", np.int16), "ui16": ("u16", np.uint16),
    "i32": ("i32", np.int32), "ui32": ("u32", np.uint32), "i64": ("i64", np.int64), "ui64": ("u64", np.uint64),
    "f8E4M3FN": ("f8e4m3fn", ml_dtypes.float8_e4m3fn), "f8E5M2": ("f8e5m2", ml_dtypes.float8_e5m2),
    "f16": ("f16", np.float16), "bf16": ("bf16", ml_dtypes.bfloat16), "f32": ("f32", np.float32), "f64": ("f64", np.float64),
    "complex<f32>": ("c64", np.complex64), "complex<f64>": ("c128", np.complex128),
}
NUMPY = dict(DTYPES.values())


@dataclass(frozen=True)
class Type:
    dtype: str
    dims: tuple

    def __str__(self):
        return f"{self.dtype}[{', '.join(map(str, self.dims))}]"


def parse_type(text):
    match = re.fullmatch(r"tensor<((?:\d+x)*)([^x?].*|complex.*)>", text)
    if not match or match[2] not in DTYPES:
        raise Unsupported(f"type {text}")
    return Type(DTYPES[match[2]][0], tuple(int(d) for d in match[1].split("x")[:-1]))


def parse_number(text, dtype):
    kind = NUMPY[dtype]
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("0x") and dtype not in ("c64", "c128") and np.issubdtype(np.dtype(kind), np.integer) is False and dtype not in ("i4", "u4"):
        size = np.dtype(kind).itemsize
        return np.frombuffer(int(text, 16).to_bytes(size, "little"), dtype=kind)[0]
    return int(text, 0) if re.fullmatch(r"-?\d+|0x[0-9A-Fa-f]+", text) and dtype[0] in "iu" else float(text)


def parse_dense(text, type):
    """An array of the type from what stands between dense< and >."""
    kind = np.dtype(NUMPY[type.dtype])
    count = int(np.prod(type.dims, dtype=np.int64))
    text = text.strip()
    if text.startswith('"0x'):
        raw = bytes.fromhex(text[3:-1])
        if type.dtype == "bool":
            values = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")[:count].astype(bool) if len(raw) * 8 >= count else None
            values = np.full(count, raw[0] != 0) if values is None else values
        else:
            values = np.frombuffer(raw, kind)
        return np.resize(values, count).reshape(type.dims)
    if type.dtype in ("c64", "c128"):
        part = "f32" if type.dtype == "c64" else "f64"
        pairs = re.findall(r"\(\s*([^,()]+?)\s*,\s*([^,()]+?)\s*\)", text)
        values = np.array([complex(parse_number(a, part), parse_number(b, part)) for a, b in pairs], kind)
        for i, (a, b) in enumerate(pairs):  # complex(nan, x) keeps both parts, but inf * 1j would not
            values.real[i], values.imag[i] = parse_number(a, part), parse_number(b, part)
    else:
        values = np.array([parse_number(n, type.dtype) for n in re.findall(r"[^\s,\[\]]+", text)], kind)
    if count and values.size not in (1, count):
        raise Unsupported("constant of a strange size")
    return (np.resize(values, count) if count else np.zeros(0, kind)).reshape(type.dims)


def raw_bytes(array, dtype):
    if dtype in ("i4", "u4"):
        nibbles = array.astype(np.int8).reshape(-1).view(np.uint8) & 15
        nibbles = np.append(nibbles, np.zeros(nibbles.size % 2, np.uint8))
        return (nibbles[0::2] | nibbles[1::2] << 4).tobytes()
    return np.ascontiguousarray(array).tobytes()


# ---- tokens ----------------------------------------------------------------------------------------------------------

TOKEN = re.compile(
    r'\s+|//[^\n]*|(?P<t>tensor<(?:[^<>]|<[^<>]*>)*>|dense<[^>]*>|array<[^>]*>|\#stablehlo(?:\.\w+)?<(?:[^<>]|->)*>|"[^"]*"|'
    r'%[\w$.]+(?:\#\d+)?|@"[^"]*"|'
    r"@[\w$.]+|\^\w+|->|-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*(?:[eE][-+]?\d+)?)?)|[\w$.]+|[^\s])")


def tokenize(source):
    return [m["t"] for m in TOKEN.finditer(source) if m["t"]]


@dataclass
class Op:
    name: str
    results: list = field(default_factory=list)   # (name, count)
    operands: list = field(default_factory=list)
    attrs: dict = field(default_factory=dict)
    regions: list = field(default_factory=list)   # (argument names and types, operations)
    in_types: list = field(default_factory=list)
    out_types: list = field(default_factory=list)


class Parser:
    def __init__(self, tokens):
        self.tokens, self.at = tokens, 0

    def peek(self, ahead=0):
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, *tokens):
        if self.tokens[self.at:self.at + len(tokens)] == list(tokens):
            self.at += len(tokens)
            return True
        return False

    def expect(self, token):
        if self.next() != token:
            raise Unsupported(f"syntax: expected {token}, found {' '.join(self.tokens[max(0, self.at - 4):self.at + 3])[:80]}")

    def skip_balanced(self):
        """Skips one bracketed group."""
        depth = 0
        while True:
            t = self.next()
            depth += (t in "([{<") - (t in ")]}>")
            if depth == 0:
                return

    # attributes: a value is a string (one token) or a list
    def value(self):
        if self.peek() == "[":
            return self.list()
        if self.peek() == "{":
            return self.dictionary()
        t = self.next()
        if self.accept(":"):
            return (t, self.next())
        return t

    def list(self):
        self.expect("[")
        items = []
        while not self.accept("]"):
            items.append(self.value())
            self.accept(",")
        return items

    def dictionary(self, end="}"):
        self.next()
        attrs = {}
        while not self.accept(end):
            key = self.next().strip('"')
            attrs[key] = self.value() if self.accept("=") else "true"
            self.accept(",")
        return attrs

    def types(self):
        """`(t, t)` or `t, t`, up to what cannot be a type."""
        out = []
        if self.accept("("):
            while not self.accept(")"):
                out.append(self.next())
                if self.peek() == "{":
                    self.skip_balanced()
                self.accept(",")
            return out
        out.append(self.next())
        while self.peek() == "," and self.peek(1).startswith(("tensor<", "tuple", "!")):
            self.next()
            out.append(self.next())
        return out

    def signature(self, op):
        if not self.accept(":"):
            return
        op.in_types = self.types()
        op.out_types = self.types() if self.accept("->") else op.in_types
        if op.name == "stablehlo.select":  # without an arrow: type of the predicate, type of the rest
            op.out_types = op.out_types[-1:]

    # operations
    def block(self):
        """The operations up to the closing brace, which is taken."""
        ops = []
        while not self.accept("}"):
            ops.append(self.operation())
        return ops

    def region(self):
        self.expect("{")
        args = []
        if self.peek().startswith("^"):
            self.next()
            args = self.arguments()
            self.expect(":")
        return args, self.block()

    def arguments(self):
        args = []
        if not self.accept("("):
            return args
        while not self.accept(")"):
            name = self.next()
            self.expect(":")
            args.append((name, self.next()))
            if self.peek() == "{":
                self.skip_balanced()
            self.accept(",")
        return args

    def operation(self):
        op = Op("")
        while self.peek().startswith("%"):
            name, count = self.next(), 1
            if self.accept(":"):
                count = int(self.next())
            op.results.append((name, count))
            self.accept(",")
        if op.results:
            self.expect("=")
        op.name = self.next()
        if op.name.startswith('"'):
            op.name = op.name.strip('"')
            self.generic(op)
        else:
            getattr(self, "custom_" + op.name.replace(".", "_"), self.custom)(op)
        return op

    def generic(self, op):
        self.expect("(")
        while not self.accept(")"):
            op.operands.append(self.next())
            self.accept(",")
        if self.accept("<", "{"):
            self.at -= 1
            op.attrs.update(self.dictionary())
            self.expect(">")
        if self.accept("("):
            while not self.accept(")"):
                op.regions.append(self.region())
                self.accept(",")
        if self.peek() == "{":
            op.attrs.update(self.dictionary())
        self.signature(op)

    def custom(self, op):
        """The usual pretty form: operands, `key = value` and words up to the colon."""
        words = []
        while self.peek() not in (":", "") and not self.ends():
            t = self.peek()
            if t.startswith("%"):
                op.operands.append(self.next())
            elif t == "{":
                op.attrs.update(self.dictionary())
            elif t == "[" and op.name == "stablehlo.slice":
                op.attrs["ranges"] = self.ranges()
            elif self.peek(1) == "=":
                key = self.next()
                self.next()
                op.attrs[key] = self.value_without_type()
                if self.accept("x"):
                    op.attrs[key] = (op.attrs[key], self.value_without_type())
            else:
                words.append(self.next())
        op.attrs["words"] = [w for w in words if w not in (",", "(", ")")]
        self.signature(op)

    def ends(self):
        """A statement without types: return without operands."""
        return self.peek() == "}"

    def value_without_type(self):
        return self.list() if self.peek() == "[" else self.next()

    def ranges(self):
        self.expect("[")
        out = []
        while not self.accept("]"):
            parts = [int(self.next())]
            while self.accept(":"):
                parts.append(int(self.next()))
            out.append(parts + [1] * (3 - len(parts)))
            self.accept(",")
        return out

    def custom_stablehlo_constant(self, op):
        if self.peek() == "{":
            self.dictionary()
        op.attrs["value"] = self.next()
        self.signature(op)

    def custom_stablehlo_return(self, op):
        while self.peek().startswith("%"):
            op.operands.append(self.next())
            self.accept(",")
        if op.operands:
            self.signature(op)

    custom_return = custom_func_return = custom_stablehlo_return

    def custom_call(self, op):
        op.name, op.attrs["callee"] = "call", self.next()
        self.expect("(")
        while not self.accept(")"):
            op.operands.append(self.next())
            self.accept(",")
        if self.peek() == "{":
            op.attrs.update(self.dictionary())
        self.signature(op)

    custom_func_call = custom_call

    def custom_stablehlo_custom_call(self, op):
        self.custom_call(op)
        op.name = "custom_call"

    def custom_stablehlo_convolution(self, op):
        self.expect("(")
        while not self.accept(")"):
            op.operands.append(self.next())
            self.accept(",")
        self.expect("dim_numbers")
        self.expect("=")
        layouts = [self.list()]
        for mark in ("x", "->"):
            self.expect(mark)
            layouts.append(self.list())
        op.attrs["layouts"] = ["".join(x) for x in layouts]
        self.accept(",")
        self.expect("window")
        self.expect("=")
        op.attrs["window"] = self.dictionary()
        if self.peek() == "{":
            op.attrs.update(self.dictionary())
        self.signature(op)

    def custom_stablehlo_reduce(self, op):
        inits = []
        while self.accept("("):
            op.operands.append(self.next())
            self.expect("init")
            self.expect(":")
            inits.append(self.next())
            self.expect(")")
            self.accept(",")
        op.operands += inits
        if self.accept("applies"):
            op.attrs["applies"] = self.next()
        self.expect("across")
        self.expect("dimensions")
        self.expect("=")
        op.attrs["dimensions"] = self.list()
        self.signature(op)
        if self.accept("reducer"):
            pairs = []
            while self.peek() == "(":
                pairs.append(self.arguments())
            self.expect("{")
            op.regions.append(([p[0] for p in pairs] + [p[1] for p in pairs], self.block()))

    def custom_stablehlo_while(self, op):
        names = []
        self.expect("(")
        while not self.accept(")"):
            names.append(self.next())
            self.expect("=")
            op.operands.append(self.next())
            self.accept(",")
        self.signature(op)
        args = list(zip(names, op.in_types))
        for word in ("cond", "do"):
            self.expect(word)
            self.expect("{")
            op.regions.append((args, self.block()))

    def custom_check_expect_eq_const(self, op):
        op.operands.append(self.next())
        self.expect(",")
        op.attrs["value"] = self.next()
        self.signature(op)

    custom_check_expect_almost_eq_const = custom_check_expect_eq_const

    def function(self):
        """After func.func: (name, arguments, operations)."""
        self.accept("public") or self.accept("private")
        name = self.next()
        args = self.arguments()
        if self.accept("->"):
            self.types()
        if self.accept("attributes"):
            self.skip_balanced()
        self.expect("{")
        return name, args, self.block()


# ---- graphs ----------------------------------------------------------------------------------------------------------

@dataclass
class Check:
    kind: str        # eq, almost_eq, close
    max_ulp: int = 3
    min_ulp: int = 0


@dataclass
class Test:
    name: str
    text: str = ""
    checks: list = field(default_factory=list)
    unsupported: str = ""


SAME_NAME = """abs negate sign floor ceil round_nearest_even round_nearest_afz sqrt rsqrt cbrt exponential exponential_minus_one
log log_plus_one logistic sine cosine tan tanh is_finite not popcnt count_leading_zeros real imag add subtract multiply
divide remainder power maximum minimum and or xor shift_left shift_right_arithmetic shift_right_logical atan2 select clamp
complex optimization_barrier dynamic_update_slice""".split()
CHLO = "erf asin acos atan sinh cosh asinh acosh atanh tan".split()


def ints(value):
    """Integers of [1, 2], array<i64: 1, 2> or dense<..> : tensor<..>."""
    if isinstance(value, list):
        return [int(v if isinstance(v, str) else v[0]) for v in value]
    if isinstance(value, tuple):
        return parse_dense(value[0][6:-1], parse_type(value[1])).reshape(-1).tolist()
    return [int(v) for v in re.findall(r"-?\d+", value.split(":", 1)[1] if ":" in value else "")]


def scalar(value):
    return value[0] if isinstance(value, tuple) else value


def numbers_of(text, key):
    match = re.search(rf"\b{key} = (?:\[([^\]]*)\]|(\d+))", text)
    return [] if not match else [int(n) for n in re.findall(r"\d+", match[1] if match[1] is not None else match[2])]


class Emitter:
    def __init__(self, functions):
        self.functions, self.lines, self.names, self.checks, self.returned, self.indent = functions, [], 0, [], [], 1

    def line(self, text):
        self.lines.append("  " * self.indent + text)

    def fresh(self):
        self.names += 1
        return f"%v{self.names}"

    def define(self, text, types):
        """%a, %b = text : types; the new values."""
        values = [(self.fresh(), t) for t in types]
        self.line(f"{', '.join(n for n, _ in values)} = {text} : {', '.join(str(t) for t in types)}")
        return values

    def op(self, name, operands, attrs, types, regions=()):
        text = name + (" " if operands else "") + ", ".join(n for n, _ in operands)
        for i, (key, value) in enumerate(attrs):
            text += (", " if operands or i else " ") + f"{key} = {value}"
        values = self.define(text, types)
        for emit in regions:
            self.lines[-1] += " {"
            self.indent += 1
            emit()
            self.indent -= 1
            self.line("}")
        return values

    def constant(self, dense, type):
        array = parse_dense(dense, type)
        empty = 0 in type.dims and re.sub(r"\d", "", str(np.empty(type.dims).tolist()).replace(" ", ""))
        body = empty or f'"0x{raw_bytes(array, type.dtype).hex().upper()}"'
        return self.define(f"constant dense<{body}>", [type])[0]

    def body(self, ops, env):
        """Emits operations; the values that the closing return names."""
        for op in ops:
            if op.name.split(".")[-1] == "return":
                return [env[n] for n in op.operands]
            results = self.operation(op, [self.look_up(env, n) for n in op.operands], env)
            i = 0
            for name, count in op.results:
                for k in range(count):
                    env[name if count == 1 and len(op.results) > 0 else f"{name}#{k}"] = results[i]
                    i += 1
                if count == 1:
                    env[f"{name}#0"] = env[name]
        return []

    @staticmethod
    def look_up(env, name):
        if name not in env:
            raise Unsupported(f"value {name}")
        return env[name]

    def region(self, region, env):
        args, ops = region
        inner = dict(env)

        def emit():
            if args:
                values = [(self.fresh(), parse_type(t)) for _, t in args]
                inner.update({name: v for (name, _), v in zip(args, values)})
                self.lines.append("  " * (self.indent - 1) + f"^({', '.join(f'{n}: {t}' for n, t in values)}):")
            self.line("return " + ", ".join(n for n, _ in self.body(ops, inner)))
        return emit

    def operation(self, op, x, env):
        kind, _, name = op.name.rpartition(".")
        if kind == "check" or op.name == "custom_call":
            return self.check(op, x)
        if op.name == "call":
            _, args, ops = self.functions[op.attrs["callee"]]
            return self.body(ops, {a: v for (a, _), v in zip(args, x)})
        if (kind == "stablehlo" and name in SAME_NAME) or (kind == "chlo" and name in CHLO):
            return self.op(name, x, [], [parse_type(t) for t in op.out_types])
        if op.name == "chlo.square":
            return self.op("multiply", x * 2, [], [parse_type(t) for t in op.out_types])
        method = getattr(self, "op_" + name, None) if kind == "stablehlo" else None
        if not method:
            raise Unsupported(op.name)
        return method(op, x, [parse_type(t) for t in op.out_types], env)

    def check(self, op, x):
        kind = (op.attrs.get("callee") or "@" + op.name).split("expect_")
        if len(kind) != 2 or kind[1].startswith("serialized"):
            raise Unsupported(op.attrs.get("callee", op.name))
        if kind[1].endswith("_const"):
            x = x + [self.constant(op.attrs["value"][6:-1], parse_type(op.in_types[0]))]
        self.returned += x
        self.checks.append(Check(kind[1].removesuffix("_const"), int(op.attrs.get("max_ulp_difference", 3)),
                                 int(op.attrs.get("min_ulp_difference", 0))))
        return []

    # operations that need more than their name
    def op_constant(self, op, x, out, env):
        return [self.constant(op.attrs["value"][6:-1], out[0])]

    def op_iota(self, op, x, out, env):
        return self.op("iota", [], [("shape", list(out[0].dims)), ("dtype", out[0].dtype), ("iota_dimension", op.attrs["dim"])], out)

    def op_compare(self, op, x, out, env):
        words = op.attrs["words"]
        attrs = [("direction", f'"{words[0]}"')] + ([("total_order", "true")] if words[-1] == "TOTALORDER" else [])
        return self.op("compare", x, attrs, out)

    def op_convert(self, op, x, out, env):
        return self.op("convert", x, [("dtype", out[0].dtype)], out)

    def op_bitcast_convert(self, op, x, out, env):
        return self.op("bitcast_convert", x, [("dtype", out[0].dtype)], out)

    def op_reduce_precision(self, op, x, out, env):
        bits = re.fullmatch(r"e(\d+)m(\d+)", op.attrs["format"])
        return self.op("reduce_precision", x, [("exponent_bits", bits[1]), ("mantissa_bits", bits[2])], out)

    def op_broadcast_in_dim(self, op, x, out, env):
        dims = op.attrs.get("dims", op.attrs.get("broadcast_dimensions"))
        return self.op("broadcast_in_dim", x[:1], [("shape", list(out[0].dims)), ("broadcast_dimensions", ints(dims))], out)

    op_dynamic_broadcast_in_dim = op_broadcast_in_dim

    def op_reshape(self, op, x, out, env):
        return self.op("reshape", x[:1], [("shape", list(out[0].dims))], out)

    op_dynamic_reshape = op_reshape

    def op_dynamic_iota(self, op, x, out, env):
        return self.op_iota(op, x, out, env)

    def op_transpose(self, op, x, out, env):
        return self.op("transpose", x, [("permutation", ints(op.attrs["dims"]))], out)

    def op_reverse(self, op, x, out, env):
        return self.op("reverse", x, [("dimensions", ints(op.attrs.get("dims", op.attrs.get("dimensions"))))], out)

    def op_concatenate(self, op, x, out, env):
        return self.op("concatenate", x, [("dimension", op.attrs["dim"])], out)

    def op_slice(self, op, x, out, env):
        if "ranges" in op.attrs:
            start, limit, strides = ([r[i] for r in op.attrs["ranges"]] for i in range(3))
        else:
            start, limit, strides = (ints(op.attrs[k]) for k in ("start_indices", "limit_indices", "strides"))
        return self.op("slice", x, [("start", start), ("limit", limit), ("strides", strides)], out)

    def op_pad(self, op, x, out, env):
        return self.op("pad", x, [(k, ints(op.attrs[k])) for k in ("low", "high", "interior")], out)

    def op_dynamic_slice(self, op, x, out, env):
        sizes = op.attrs.get("sizes", op.attrs.get("slice_sizes"))
        return self.op("dynamic_slice", x, [("sizes", ints(sizes))], out)

    def op_get_dimension_size(self, op, x, out, env):
        return [self.constant(str(x[0][1].dims[int(op.attrs["dim"])]), out[0])]

    def op_gather(self, op, x, out, env):
        numbers = op.attrs["dimension_numbers"]
        keys = [("offset_dims",) * 2, ("collapsed_slice_dims",) * 2, ("operand_batching_dims",) * 2,
                ("indices_batching_dims", "start_indices_batching_dims"), ("start_index_map",) * 2]
        attrs = [(ours, numbers_of(numbers, theirs)) for ours, theirs in keys]
        attrs += [("index_vector_dim", (numbers_of(numbers, "index_vector_dim") or [0])[0]), ("sizes", ints(op.attrs["slice_sizes"]))]
        return self.op("gather", x, attrs, out)

    def op_scatter(self, op, x, out, env):
        numbers = op.attrs["scatter_dimension_numbers"]
        keys = ["update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims", "scatter_dims_to_operand_dims"]
        attrs = [(k, numbers_of(numbers, k)) for k in keys]
        attrs += [("index_vector_dim", (numbers_of(numbers, "index_vector_dim") or [0])[0])]
        return self.op("scatter", x, attrs, out, [self.region(op.regions[0], env)])

    def op_reduce(self, op, x, out, env):
        n = len(x) // 2
        if "applies" in op.attrs:
            def emit():
                a, b = [(self.fresh(), Type(out[0].dtype, ())) for _ in range(2)]
                self.lines.append("  " * (self.indent - 1) + f"^({a[0]}: {a[1]}, {b[0]}: {b[1]}):")
                self.line(f"return {self.op(op.attrs['applies'].split('.')[1], [a, b], [], [a[1]])[0][0]}")
        else:
            emit = self.region(op.regions[0], env)
        return self.op("reduce", x, [("dimensions", ints(op.attrs["dimensions"]))], out[:n], [emit])

    @staticmethod
    def window(op, rank, dilated=True):
        def get(key, default):
            return ints(op.attrs[key]) if key in op.attrs else [default] * rank
        padding = np.array(get("padding", 0) if "padding" in op.attrs else [0] * 2 * rank).reshape(rank, 2)
        attrs = [("window", get("window_dimensions", 1)), ("window_strides", get("window_strides", 1))]
        if dilated:
            attrs += [("base_dilation", get("base_dilations", 1)), ("window_dilation", get("window_dilations", 1))]
        return attrs + [("padding_low", padding[:, 0].tolist()), ("padding_high", padding[:, 1].tolist())]

    def op_reduce_window(self, op, x, out, env):
        return self.op("reduce_window", x, self.window(op, len(x[0][1].dims)), out, [self.region(op.regions[0], env)])

    def op_select_and_scatter(self, op, x, out, env):
        return self.op("select_and_scatter", x, self.window(op, len(x[0][1].dims), False), out, [self.region(r, env) for r in op.regions])

    def op_sort(self, op, x, out, env):
        attrs = [("dimension", scalar(op.attrs.get("dimension", str(len(x[0][1].dims) - 1))))]
        attrs += [("stable", "true")] if scalar(op.attrs.get("is_stable", "false")) == "true" else []
        return self.op("sort", x, attrs, out, [self.region(op.regions[0], env)])

    def op_dot_general(self, op, x, out, env):
        batch, contract = op.attrs.get("batching_dims", ([], [])), op.attrs["contracting_dims"]
        attrs = [("lhs_batch", ints(batch[0])), ("rhs_batch", ints(batch[1])), ("lhs_contract", ints(contract[0])), ("rhs_contract", ints(contract[1]))]
        attrs += [("dtype", out[0].dtype)] if out[0].dtype != x[0][1].dtype else []
        return self.op("dot_general", x, attrs, out)

    def op_convolution(self, op, x, out, env):
        n, window = len(x[0][1].dims) - 2, op.attrs["window"]

        def get(key, default):
            return [int(v == "true") if v in ("true", "false") else int(v) for v in window.get(key, [str(default)] * n)]
        pad = np.array(window.get("pad", [["0", "0"]] * n)).astype(int).reshape(n, 2)
        attrs = list(zip(("lhs_layout", "rhs_layout", "out_layout"), (f'"{s}"' for s in op.attrs["layouts"])))
        attrs += [("window_strides", get("stride", 1)), ("padding_low", pad[:, 0].tolist()), ("padding_high", pad[:, 1].tolist()),
                  ("base_dilation", get("lhs_dilate", 1)), ("window_dilation", get("rhs_dilate", 1)), ("window_reversal", get("reverse", 0)),
                  ("feature_group_count", scalar(op.attrs["feature_group_count"])), ("batch_group_count", scalar(op.attrs["batch_group_count"]))]
        attrs += [("dtype", out[0].dtype)] if out[0].dtype != x[0][1].dtype else []
        return self.op("convolution", x, attrs, out)

    def op_fft(self, op, x, out, env):
        return self.op("fft", x, [("fft_type", f'"{op.attrs["type"]}"'), ("fft_length", ints(op.attrs["length"]))], out)

    def op_cholesky(self, op, x, out, env):
        return self.op("cholesky", x, [("lower", op.attrs.get("lower", "false"))], out)

    def op_triangular_solve(self, op, x, out, env):
        attrs = [(k, scalar(op.attrs[k])) for k in ("left_side", "lower", "unit_diagonal")]
        kind = re.search(r"transpose (\w+)", op.attrs["transpose_a"])[1]
        return self.op("triangular_solve", x, attrs + [("transpose_a", f'"{kind}"')], out)

    def op_rng_bit_generator(self, op, x, out, env):
        attrs = [("shape", list(out[1].dims)), ("dtype", out[1].dtype), ("algorithm", f'"{op.attrs["algorithm"]}"')]
        return self.op("rng_bit_generator", x, attrs, out)

    def op_while(self, op, x, out, env):
        return self.op("while", x, [], out, [self.region(r, env) for r in op.regions])

    def op_case(self, op, x, out, env):
        return self.op("case", x, [], out, [self.region(r, env) for r in op.regions])

    def op_if(self, op, x, out, env):
        return self.op("if", x, [], out, [self.region(r, env) for r in op.regions])

    def op_composite(self, op, x, out, env):
        _, args, ops = self.functions[op.attrs["decomposition"]]
        return self.op("composite", x, [("name", op.attrs["words"][0])], out, [self.region((args, ops), {})])


def module_functions(source):
    parser, functions = Parser(tokenize(source)), {}
    while parser.at < len(parser.tokens):
        if parser.next() == "func.func":
            name, args, ops = parser.function()
            functions[name] = (name, args, ops)
    return functions


def convert(source):
    """Tests of one file; -split-input-file's marks separate modules. A part that cannot be read is one unsupported test."""
    for part in re.split(r"^// -----.*$", source, flags=re.M):
        names = re.findall(r"func\.func (?:public |private )?@([\w.]+)\(\s*\)", part)
        if not re.search(r"expect_", part):
            continue
        try:
            functions = module_functions(part)
        except (Unsupported, IndexError) as error:
            yield Test((names or ["?"])[0], unsupported=str(error) or "syntax")
            continue
        for name, args, ops in functions.values():
            if args or not any("expect_" in str(op.attrs.get("callee", op.name)) for op in ops):
                continue
            emitter, test = Emitter(functions), Test(name[1:])
            try:
                emitter.body(ops, {})
            except Unsupported as error:
                test.unsupported = str(error)
            test.checks = emitter.checks
            test.text = "\n".join(["graph @test() {"] + emitter.lines + ["  return " + ", ".join(n for n, _ in emitter.returned), "}", ""])
            yield test
