"""Networks for a GPU, bf16, as exporters write them: plain ONNX operators, and a seeded RandomNormal node in place of each weight, so that a file is small.

A network is a class. `onnx()` makes its model; `weights` lists what was drawn, in order, for a peer that is to have the same values (peers.py)."""
import pathlib

import numpy as np

KEEP = pathlib.Path(__file__).resolve().parents[2] / "build" / "bench" / "gpu"


class Weight:
    """Drawn as mean + scale * N(0, 1) in f32, rounded to bf16. The seed is its place in the list."""

    def __init__(self, seed, shape, scale, mean):
        self.seed, self.shape, self.scale, self.mean = seed, tuple(shape), float(np.float32(scale)), float(np.float32(mean))


class Recorder:
    """What a network asks of a builder for its weights alone: no package onnx is needed."""

    def __init__(self):
        self.weights = []

    def weight(self, *shape, scale=0.02, mean=0.0):
        self.weights.append(Weight(len(self.weights) + 1, shape, scale, mean))
        return self.weights[-1]


class Builder(Recorder):
    """Collects nodes; every method returns the name of what it made."""

    def __init__(self, opset=22):
        import onnx
        super().__init__()
        self.onnx, self.nodes, self.constants, self.inputs, self.outputs = onnx, [], {}, [], []
        self.opset, self.BF16, self.F32, self.I64 = opset, onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64

    def __call__(self, op, *inputs, **attributes):
        name = f"{op}_{len(self.nodes)}_output"
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), [name], name=f"{op}_{len(self.nodes)}", **attributes))
        return name

    def input(self, name, shape, dtype=None):
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, dtype or self.BF16, shape))
        return name

    def output(self, value, shape):
        self.outputs.append(self.onnx.helper.make_tensor_value_info(value, self.BF16, shape))

    def ints(self, *values):
        return self.constant(np.array(values, np.int64), self.I64)

    def number(self, value, dtype=None):
        return self.constant(np.array(value, np.float32), dtype or self.BF16)

    def constant(self, values, dtype):
        key = (values.tobytes(), values.shape, dtype)
        if key not in self.constants:
            name = f"constant_{len(self.constants)}"
            self.constants[key] = self.onnx.helper.make_tensor(name, dtype, values.shape, values.ravel().tolist())
        return self.constants[key].name

    def weight(self, *shape, scale=0.02, mean=0.0):
        w = super().weight(*shape, scale=scale, mean=mean)
        return self("RandomNormal", dtype=self.BF16, shape=list(shape), mean=w.mean, scale=w.scale, seed=float(w.seed))

    def model(self, name):
        graph = self.onnx.helper.make_graph(self.nodes, name, self.inputs, self.outputs, list(self.constants.values()))
        return self.onnx.helper.make_model(graph, opset_imports=[self.onnx.helper.make_opsetid("", self.opset)], ir_version=10)

    # ---- what several networks have

    def linear(self, x, w, bias=None):
        y = self("MatMul", x, w)
        return self("Add", y, bias) if bias else y

    def reshape(self, x, *sizes):
        return self("Reshape", x, self.ints(*sizes))

    def heads(self, x, batch, words, heads, size, permutation):
        return self("Transpose", self.reshape(x, batch, words, heads, size), perm=permutation)

    def attention(self, q, k, v, size, mask=None):
        """softmax(q k / sqrt(size) + mask) v; k lies along words."""
        scores = self("Mul", self("MatMul", q, k), self.number(size ** -0.5))
        scores = self("Add", scores, mask) if mask else scores
        return self("MatMul", self("Softmax", scores, axis=-1), v)

    def gelu(self, x):
        erf = self("Erf", self("Div", x, self.number(2 ** 0.5)))
        return self("Mul", self("Mul", x, self("Add", erf, self.number(1.0))), self.number(0.5))


def drawn(b, inner, outer, gain=1.0):
    return b.weight(inner, outer, scale=gain * inner ** -0.5)


# ---- ResNet-50 -------------------------------------------------------------------------------------------------------------

class ResNet50:
    """torchvision's: strides in the 3 x 3 convolutions, batch norms apart."""
    STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))

    def __init__(self, batch):
        self.name, self.batch = f"resnet50_b{batch}", batch

    def draw(self, b):
        """The weights: (convolution, scale, offset, mean, variance) by place."""
        def unit(inner, outer, size, gain=1.0):
            c = (b.weight(outer, inner, size, size, scale=(2 / (inner * size * size)) ** 0.5), b.weight(outer, scale=0.1 * gain, mean=gain),
                 b.weight(outer, scale=0.1), b.weight(outer, scale=0.1), b.weight(outer, scale=0.05, mean=1.0))
            return c
        w, inner = {"stem": unit(3, 64, 7), "blocks": []}, 64
        for width, depth, stride in self.STAGES:
            for i in range(depth):
                block = {"stride": stride if i == 0 else 1, "units": (unit(inner, width, 1), unit(width, width, 3), unit(width, 4 * width, 1, 0.3))}
                block["down"] = unit(inner, 4 * width, 1, 0.7) if i == 0 else None
                inner = 4 * width
                w["blocks"].append(block)
        w["head"] = (b.weight(1000, 2048, scale=2048 ** -0.5), b.weight(1000, scale=0.1))
        return w

    def inputs(self):
        return {"x": ("normal", (self.batch, 3, 224, 224))}

    def onnx(self):
        b = Builder()
        x, w = b.input("x", [self.batch, 3, 224, 224]), self.draw(b)

        def unit(x, u, stride, relu):
            size = b.weights_shape(u[0])
            pad = size // 2
            x = b("Conv", x, u[0], kernel_shape=[size, size], strides=[stride, stride], pads=[pad] * 4)
            x = b("BatchNormalization", x, *u[1:], epsilon=1e-5)
            return b("Relu", x) if relu else x
        x = b("MaxPool", unit(x, w["stem"], 2, True), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        for block in w["blocks"]:
            one, three, last = block["units"]
            y = unit(unit(unit(x, one, 1, True), three, block["stride"], True), last, 1, False)
            x = b("Relu", b("Add", y, unit(x, block["down"], block["stride"], False) if block["down"] else x))
        x = b("Flatten", b("GlobalAveragePool", x), axis=1)
        b.output(b("Gemm", x, *w["head"], transB=1), [self.batch, 1000])
        return b.model(self.name)


def _weights_shape(self, name):
    """The last size of a weight, by the name of its node's result."""
    node = next(n for n in self.nodes if n.output[0] == name)
    return next(a.ints[-1] for a in node.attribute if a.name == "shape")


Builder.weights_shape = _weights_shape


# ---- BERT ------------------------------------------------------------------------------------------------------------------

class Bert:
    LAYERS, HIDDEN, HEADS, FEED, WORDS, POSITIONS = 12, 768, 12, 3072, 30522, 512

    def __init__(self, batch, words=128):
        self.name, self.batch, self.words = f"bert_base_b{batch}", batch, words

    def norm(self, b):
        return b.weight(self.HIDDEN, scale=0.1, mean=1.0), b.weight(self.HIDDEN, scale=0.1)

    def draw(self, b):
        h = self.HIDDEN
        w = {"words": b.weight(self.WORDS, h, scale=0.5), "positions": b.weight(self.POSITIONS, h, scale=0.2), "kinds": b.weight(2, h, scale=0.2),
             "norm": self.norm(b), "layers": []}
        for _ in range(self.LAYERS):
            w["layers"].append({**{n: (drawn(b, h, h), b.weight(h, scale=0.1)) for n in "qkvo"}, "norm1": self.norm(b),
                                "up": (drawn(b, h, self.FEED), b.weight(self.FEED, scale=0.1)), "down": (drawn(b, self.FEED, h), b.weight(h, scale=0.1)),
                                "norm2": self.norm(b)})
        w["pool"] = (drawn(b, h, h), b.weight(h, scale=0.1))
        return w

    def inputs(self):
        shape = (self.batch, self.words)
        return {"input_ids": (self.WORDS, shape), "token_type_ids": (2, shape), "attention_mask": ("ones", shape)}

    def onnx(self):
        b, n, s, h = Builder(), self.batch, self.words, self.HIDDEN
        ids, kinds, keep = (b.input(name, [n, s], b.I64) for name in self.inputs())
        w = self.draw(b)
        wide = b("Cast", b("Unsqueeze", keep, b.ints(1, 2)), to=b.BF16)
        mask = b("Mul", b("Sub", b.number(1.0), wide), b.number(-3.3895e38))

        def norm(x, w):
            return b("LayerNormalization", x, *w, axis=-1, epsilon=1e-12)
        x = b("Add", b("Gather", w["words"], ids, axis=0), b("Gather", w["kinds"], kinds, axis=0))
        positions = b.constant(np.arange(s)[None], b.I64)
        x = norm(b("Add", x, b("Gather", w["positions"], positions, axis=0)), w["norm"])
        for layer in w["layers"]:
            q, k, v = (b.heads(b.linear(x, *layer[name]), n, s, self.HEADS, 64, [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]) for name in "qkv")
            y = b.reshape(b("Transpose", b.attention(q, k, v, 64, mask), perm=[0, 2, 1, 3]), n, s, h)
            x = norm(b("Add", b.linear(y, *layer["o"]), x), layer["norm1"])
            x = norm(b("Add", b.linear(b.gelu(b.linear(x, *layer["up"])), *layer["down"]), x), layer["norm2"])
        b.output(x, [n, s, h])
        b.output(b("Tanh", b.linear(b("Gather", x, b.constant(np.array(0), b.I64), axis=1), *w["pool"])), [n, h])
        return b.model(self.name)


# ---- ViT -------------------------------------------------------------------------------------------------------------------

class Vit:
    LAYERS, HIDDEN, HEADS, FEED, PATCHES = 12, 768, 12, 3072, 196

    def __init__(self, batch):
        self.name, self.batch = f"vit_base_b{batch}", batch

    def norm(self, b):
        return b.weight(self.HIDDEN, scale=0.1, mean=1.0), b.weight(self.HIDDEN, scale=0.1)

    def draw(self, b):
        h = self.HIDDEN
        w = {"patch": (b.weight(h, 3, 16, 16, scale=768 ** -0.5), b.weight(h, scale=0.1)), "class": b.weight(1, 1, h, scale=0.5),
             "positions": b.weight(1, self.PATCHES + 1, h, scale=0.2), "layers": []}
        for _ in range(self.LAYERS):
            w["layers"].append({"norm1": self.norm(b), "qkv": (drawn(b, h, 3 * h), b.weight(3 * h, scale=0.1)), "o": (drawn(b, h, h, 0.3), b.weight(h, scale=0.1)),
                                "norm2": self.norm(b), "up": (drawn(b, h, self.FEED), b.weight(self.FEED, scale=0.1)),
                                "down": (drawn(b, self.FEED, h, 0.3), b.weight(h, scale=0.1))})
        w["norm"] = self.norm(b)
        w["head"] = (b.weight(1000, h, scale=h ** -0.5), b.weight(1000, scale=0.1))
        return w

    def inputs(self):
        return {"x": ("normal", (self.batch, 3, 224, 224))}

    def onnx(self):
        b, n, h, s = Builder(), self.batch, self.HIDDEN, self.PATCHES + 1
        x, w = b.input("x", [n, 3, 224, 224]), self.draw(b)

        def norm(x, w):
            return b("LayerNormalization", x, *w, axis=-1, epsilon=1e-6)
        x = b("Conv", x, *w["patch"], kernel_shape=[16, 16], strides=[16, 16])
        x = b("Transpose", b.reshape(x, n, h, self.PATCHES), perm=[0, 2, 1])
        x = b("Concat", b("Expand", w["class"], b.ints(n, 1, h)), x, axis=1)
        x = b("Add", x, w["positions"])
        for layer in w["layers"]:
            qkv = b("Transpose", b.reshape(b.linear(norm(x, layer["norm1"]), *layer["qkv"]), n, s, 3, self.HEADS, 64), perm=[2, 0, 3, 1, 4])
            q, k, v = (b("Gather", qkv, b.constant(np.array(i), b.I64), axis=0) for i in range(3))
            y = b.attention(q, b("Transpose", k, perm=[0, 1, 3, 2]), v, 64)
            x = b("Add", x, b.linear(b.reshape(b("Transpose", y, perm=[0, 2, 1, 3]), n, s, h), *layer["o"]))
            x = b("Add", x, b.linear(b.gelu(b.linear(norm(x, layer["norm2"]), *layer["up"])), *layer["down"]))
        x = b("Gather", norm(x, w["norm"]), b.constant(np.array(0), b.I64), axis=1)
        b.output(b("Gemm", x, *w["head"], transB=1), [n, 1000])
        return b.model(self.name)


# ---- Llama -----------------------------------------------------------------------------------------------------------------

class Llama:
    """1.24 billion weights: 16 layers of 2048, 32 heads of 64 on 8 heads of keys and values, embeddings that are the last weight too. `past` words lie in
    the caches, `words` come in; new caches are outputs."""
    HIDDEN, HEADS, GROUPS, SIZE, WORDS, THETA, EPSILON = 2048, 32, 8, 64, 128256, 500000.0, 1e-5

    def __init__(self, name, words, past=0, layers=16, feed=8192):
        self.name, self.words, self.past, self.layers, self.feed = name, words, past, layers, feed

    def draw(self, b):
        h, kv = self.HIDDEN, self.GROUPS * self.SIZE
        w = {"words": b.weight(self.WORDS, h, scale=h ** -0.5), "layers": []}
        for _ in range(self.layers):
            w["layers"].append({"norm1": b.weight(h, scale=0.1, mean=1.0), "q": drawn(b, h, h), "k": drawn(b, h, kv), "v": drawn(b, h, kv),
                                "o": drawn(b, h, h, 0.3), "norm2": b.weight(h, scale=0.1, mean=1.0), "gate": drawn(b, h, self.feed),
                                "up": drawn(b, h, self.feed), "down": drawn(b, self.feed, h, 0.3)})
        w["norm"] = b.weight(h, scale=0.1, mean=1.0)
        return w

    def inputs(self):
        inputs = {"input_ids": (self.WORDS, (1, self.words)), "position_ids": ("range", (1, self.words))}
        for i in range(self.layers if self.past else 0):
            inputs[f"past_key_{i}"] = inputs[f"past_value_{i}"] = ("normal", (1, self.GROUPS, self.past, self.SIZE))
        return inputs

    def onnx(self):
        b, s, total = Builder(), self.words, self.past + self.words
        heads, groups, size = self.HEADS, self.GROUPS, self.SIZE
        given = {name: b.input(name, list(shape), b.BF16 if kind == "normal" else b.I64) for name, (kind, shape) in self.inputs().items()}
        w = self.draw(b)
        frequencies = (1.0 / self.THETA ** (np.arange(0, size, 2, dtype=np.float64) / size)).astype(np.float32)
        angle = b("MatMul", b("Cast", b("Unsqueeze", given["position_ids"], b.ints(2)), to=b.F32), b.constant(frequencies[None, None], b.F32))
        angle = b("Concat", angle, angle, axis=-1)
        cosine, sine = (b("Unsqueeze", b("Cast", b(op, angle), to=b.BF16), b.ints(1)) for op in ("Cos", "Sin"))

        def norm(x, weight):
            wide = b("Cast", x, to=b.F32)
            variance = b("ReduceMean", b("Pow", wide, b.number(2.0, b.F32)), b.ints(-1), keepdims=1)
            root = b("Sqrt", b("Add", variance, b.number(self.EPSILON, b.F32)))
            return b("Mul", weight, b("Cast", b("Mul", wide, b("Reciprocal", root)), to=b.BF16))

        def turned(x):
            half = size // 2
            low, high = (b("Slice", x, b.ints(i * half), b.ints((i + 1) * half), b.ints(3)) for i in range(2))
            return b("Add", b("Mul", x, cosine), b("Mul", b("Concat", b("Neg", high), low, axis=-1), sine))

        def repeated(x):
            shape = b.ints(1, groups, heads // groups, total, size)
            return b.reshape(b("Expand", b("Unsqueeze", x, b.ints(2)), shape), 1, heads, total, size)
        mask = None
        if s > 1:
            places = b("Range", b.constant(np.array(0), b.I64), b.constant(np.array(total), b.I64), b.constant(np.array(1), b.I64))
            below = b("LessOrEqual", b("Unsqueeze", places, b.ints(0)), b("Unsqueeze", places, b.ints(1)))
            mask = b("Where", below, b.number(0.0), b.number(-3.3895e38))
        x, caches = b("Gather", w["words"], given["input_ids"], axis=0), []
        for i, layer in enumerate(w["layers"]):
            y = norm(x, layer["norm1"])
            q, k, v = (b.heads(b.linear(y, layer[n]), 1, s, heads if n == "q" else groups, size, [0, 2, 1, 3]) for n in "qkv")
            q, k = turned(q), turned(k)
            if self.past:
                k, v = b("Concat", given[f"past_key_{i}"], k, axis=2), b("Concat", given[f"past_value_{i}"], v, axis=2)
            caches += [k, v]
            y = b.attention(q, b("Transpose", repeated(k), perm=[0, 1, 3, 2]), repeated(v), size, mask)
            x = b("Add", x, b.linear(b.reshape(b("Transpose", y, perm=[0, 2, 1, 3]), 1, s, self.HIDDEN), layer["o"]))
            y = norm(x, layer["norm2"])
            gate = b.linear(y, layer["gate"])
            x = b("Add", x, b.linear(b("Mul", b("Mul", gate, b("Sigmoid", gate)), b.linear(y, layer["up"])), layer["down"]))
        b.output(b("MatMul", norm(x, w["norm"]), b("Transpose", w["words"], perm=[1, 0])), [1, s, self.WORDS])
        for cache in caches:
            b.output(cache, [1, groups, total, size])
        return b.model(self.name)


NETWORKS = [ResNet50(1), ResNet50(64), Bert(1), Bert(32), Vit(32), Llama("llama_1b_prefill", 2048), Llama("llama_1b_decode", 1, past=511)]


def weights(network):
    """The network's weights, nested as draw() nests them, without package onnx."""
    return network.draw(Recorder())


def file(network):
    """The network's file, written once into build/bench/gpu; delete it after a change here. What ONNX has no types for is Graph IR."""
    text = getattr(network, "text", None)
    path = KEEP / f"{network.name}.{'tn' if text else 'onnx'}"
    if not path.exists():
        KEEP.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text().encode() if text else network.onnx().SerializeToString())
    return path


if __name__ == "__main__":
    for each in NETWORKS:
        print(file(each))
