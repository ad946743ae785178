"""Dropout that keeps a seed instead of a mask: what was kept is computed anew from the seed and the element's number."""
import numpy as np

import tenon.triton as triton
import tenon.triton.language as tl


@triton.jit
def dropout_kernel(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    keep = tl.rand(seed, at) > p
    tl.store(out_ptr + at, tl.where(keep, x / (1 - p), 0.0), mask=inside)


def philox(seed, counter, rounds=10):
    """Philox-4x32 (Salmon et al., 2011): the first of its four words for each counter."""
    mask = np.uint64(0xFFFFFFFF)
    c = [counter.astype(np.uint64) & mask, *(np.zeros(counter.shape, np.uint64) for _ in range(3))]
    k = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    for _ in range(rounds):
        low, high = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(high >> np.uint64(32)) ^ c[1] ^ k[0], high & mask, (low >> np.uint64(32)) ^ c[3] ^ k[1], low & mask]
        k = [(k[0] + np.uint64(0x9E3779B9)) & mask, (k[1] + np.uint64(0xBB67AE85)) & mask]
    return c[0].astype(np.uint32)


def uniform(seed, n):
    x = philox(seed, np.arange(n)).view(np.int32)
    x = np.where(x < 0, -x - 1, x)
    return x.astype(np.float32) * np.float32(4.6566127342e-10)


def check(n=10_007, p=0.35):
    rng = np.random.default_rng(3)
    x = rng.standard_normal(n, dtype=np.float32)
    for seed in (0, 123, 2**33 + 7):
        out = np.empty_like(x)
        dropout_kernel[(triton.cdiv(n, 1024),)](x, out, n, p, seed, BLOCK=1024)
        keep = uniform(seed, n) > np.float32(p)
        np.testing.assert_allclose(out, np.where(keep, x / (1 - np.float32(p)), 0), rtol=1e-6)


if __name__ == "__main__":
    check()
    print("dropout: bit-exact with Philox")
