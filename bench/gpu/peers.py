"""The networks of models.py for PyTorch, with the same weights: drawn as Tenon draws RandomNormal (Threefry-2x32 of each element's place, Box-Muller)."""
import math
import struct

import models
import torch
import torch.nn.functional as F

MASK = 0xFFFFFFFF


def mixed(seed):
    """The key of a seed: its bits as a double, plus one, hashed as tn_hash_u64 does."""
    x = (struct.unpack("<Q", struct.pack("<d", float(seed)))[0] + 1) & (1 << 64) - 1
    for _ in range(2):
        x = ((x ^ x >> 32) * 0xD6E8FEB86659FD93) & (1 << 64) - 1
    return x ^ x >> 32


def normal(w, device):
    """The weight's values, bf16."""
    key, count = mixed(w.seed), math.prod(w.shape)
    k = [key & MASK, key >> 32]
    k.append(k[0] ^ k[1] ^ 0x1BD11BDA)
    out = torch.empty(count, dtype=torch.bfloat16, device=device)
    for first in range(0, count, 1 << 25):
        n = min(1 << 25, count - first)
        at = torch.arange(first, first + n, dtype=torch.int64, device=device)
        a, b = ((at & MASK) + k[0]) & MASK, ((at >> 32) + k[1]) & MASK
        for turn in range(1, 6):
            for by in (13, 15, 26, 6) if turn % 2 else (17, 29, 16, 24):
                a = (a + b) & MASK
                b = ((b << by | b >> (32 - by)) & MASK) ^ a
            a, b = (a + k[turn % 3]) & MASK, (b + k[(turn + 1) % 3] + turn) & MASK
        u, v = ((x >> 8).to(torch.float32) * 2.0 ** -24 for x in (a, b))
        x = torch.sqrt(-2 * torch.log(1 - u)) * torch.cos(torch.tensor(2 * math.pi, dtype=torch.float32, device=device) * v)
        out[first:first + n] = x * torch.tensor(w.scale, dtype=torch.float32, device=device) + torch.tensor(w.mean, dtype=torch.float32, device=device)
    return out.view(w.shape)


def drawn(tree, device):
    """The weights of models.weights() as tensors, nested the same way."""
    if isinstance(tree, dict):
        return {name: drawn(each, device) for name, each in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [drawn(each, device) for each in tree]
    return normal(tree, device) if hasattr(tree, "seed") else tree


def inputs(network, device):
    """By name, the same each time."""
    g = torch.Generator(device="cpu").manual_seed(1)
    made = {}
    for name, (kind, shape) in network.inputs().items():
        if kind == "normal":
            made[name] = torch.randn(shape, generator=g).to(torch.bfloat16)
        elif kind == "ones":
            made[name] = torch.ones(shape, dtype=torch.int64)
        elif kind == "range":
            made[name] = torch.arange(shape[-1]).expand(shape).contiguous() + getattr(network, "past", 0)
        else:
            made[name] = torch.randint(0, kind, shape, generator=g)
    return {name: t.to(device) for name, t in made.items()}


class Peer(torch.nn.Module):
    """forward() takes the inputs in the network's order and gives its outputs. Weights are parameters, so that a compiler may freeze nothing of the inputs."""

    def __init__(self, network, device):
        super().__init__()
        self.network, self.count = network, 0
        self.w = self.keep(self.change(drawn(models.weights(network), device)))

    def change(self, w):
        return w

    def keep(self, tree):
        if isinstance(tree, dict):
            return {name: self.keep(each) for name, each in tree.items()}
        if isinstance(tree, (list, tuple)):
            return [self.keep(each) for each in tree]
        if not isinstance(tree, torch.Tensor):
            return tree
        self.count += 1
        self.register_parameter(f"p{self.count}", torch.nn.Parameter(tree, requires_grad=False))
        return Named(self, f"p{self.count}")

    def __getitem__(self, path):
        return path.module._parameters[path.name]


class Named:
    def __init__(self, module, name):
        self.module, self.name = module, name


class ResNet50(Peer):
    def change(self, w):
        def last(t):
            return t.contiguous(memory_format=torch.channels_last) if isinstance(t, torch.Tensor) and t.dim() == 4 else t
        def walk(tree):
            return {k: walk(v) for k, v in tree.items()} if isinstance(tree, dict) else [walk(v) for v in tree] if isinstance(tree, list) else last(tree)
        return walk(w)

    def unit(self, x, u, stride, relu):
        w, scale, offset, mean, variance = (self[p] for p in u)
        x = F.batch_norm(F.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2), mean, variance, scale, offset, False, 0.0, 1e-5)
        return F.relu(x) if relu else x

    def forward(self, x):
        x = F.max_pool2d(self.unit(x.contiguous(memory_format=torch.channels_last), self.w["stem"], 2, True), 3, 2, 1)
        for block in self.w["blocks"]:
            one, three, last = block["units"]
            y = self.unit(self.unit(self.unit(x, one, 1, True), three, block["stride"], True), last, 1, False)
            x = F.relu(y + (self.unit(x, block["down"], block["stride"], False) if block["down"] else x))
        return (F.linear(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1), *(self[p] for p in self.w["head"])),)


def turned(w):
    """[in, out] to nn.Linear's [out, in]."""
    return w.t().contiguous()


class Transformer(Peer):
    def change(self, w):
        return {name: [self.change(each) for each in v] if name == "layers" else self.linear_of(name, v) for name, v in w.items()}

    def linear_of(self, name, v):
        if name in ("q", "k", "v", "o", "qkv", "up", "down", "gate", "pool"):
            return [turned(v[0]), v[1]] if isinstance(v, list) else turned(v)
        return v

    def linear(self, x, w):
        return F.linear(x, *(self[p] for p in w)) if isinstance(w, list) else F.linear(x, self[w])

    def norm(self, x, w, epsilon):
        return F.layer_norm(x, (x.shape[-1],), self[w[0]], self[w[1]], epsilon)


class Bert(Transformer):
    def forward(self, ids, kinds, keep):
        w, n, s = self.w, *ids.shape
        kind = self[w["words"]].dtype
        mask = (1.0 - keep[:, None, None, :].to(kind)) * torch.finfo(torch.bfloat16).min
        x = F.embedding(ids, self[w["words"]]) + F.embedding(kinds, self[w["kinds"]]) + self[w["positions"]][:s]
        x = self.norm(x, w["norm"], 1e-12)
        for layer in w["layers"]:
            q, k, v = (self.linear(x, layer[name]).view(n, s, 12, 64).transpose(1, 2) for name in "qkv")
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(n, 1, s, s)).transpose(1, 2).reshape(n, s, 768)
            x = self.norm(self.linear(y, layer["o"]) + x, layer["norm1"], 1e-12)
            x = self.norm(self.linear(F.gelu(self.linear(x, layer["up"])), layer["down"]) + x, layer["norm2"], 1e-12)
        return x, torch.tanh(self.linear(x[:, 0], w["pool"]))


class Vit(Transformer):
    def forward(self, x):
        w, n = self.w, x.shape[0]
        x = F.conv2d(x, self[w["patch"][0]], self[w["patch"][1]], stride=16).flatten(2).transpose(1, 2)
        x = torch.cat([self[w["class"]].expand(n, -1, -1), x], 1) + self[w["positions"]]
        for layer in w["layers"]:
            qkv = self.linear(self.norm(x, layer["norm1"], 1e-6), layer["qkv"]).view(n, -1, 3, 12, 64).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]).transpose(1, 2).reshape(n, -1, 768)
            x = x + self.linear(y, layer["o"])
            x = x + self.linear(F.gelu(self.linear(self.norm(x, layer["norm2"], 1e-6), layer["up"])), layer["down"])
        return (F.linear(self.norm(x, w["norm"], 1e-6)[:, 0], *(self[p] for p in w["head"])),)


class Llama(Transformer):
    def rms(self, x, w):
        wide = x.float()
        return self[w] * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.network.EPSILON)).to(x.dtype)

    def forward(self, ids, positions, *caches):
        w, s, size = self.w, ids.shape[1], self.network.SIZE
        frequencies = 1.0 / self.network.THETA ** (torch.arange(0, size, 2, device=ids.device, dtype=torch.float32) / size)
        angle = positions[:, :, None].float() * frequencies
        angle = torch.cat([angle, angle], -1)
        x, out = F.embedding(ids, self[w["words"]]), []
        cosine, sine = angle.cos().to(x.dtype)[:, None], angle.sin().to(x.dtype)[:, None]

        def turn(x):
            low, high = x[..., :size // 2], x[..., size // 2:]
            return x * cosine + torch.cat([-high, low], -1) * sine
        for i, layer in enumerate(w["layers"]):
            y = self.rms(x, layer["norm1"])
            q, k, v = (self.linear(y, layer[name]).view(1, s, -1, size).transpose(1, 2) for name in "qkv")
            q, k = turn(q), turn(k)
            if caches:
                k, v = torch.cat([caches[2 * i], k], 2), torch.cat([caches[2 * i + 1], v], 2)
            out += [k, v]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=s > 1, enable_gqa=True).transpose(1, 2).reshape(1, s, -1)
            x = x + self.linear(y, layer["o"])
            y = self.rms(x, layer["norm2"])
            x = x + self.linear(F.silu(self.linear(y, layer["gate"])) * self.linear(y, layer["up"]), layer["down"])
        return F.linear(self.rms(x, w["norm"]), self[w["words"]]), *out


def peer(network, device):
    return globals()[type(network).__name__](network, device).eval()
