"""softmax(Q K^T * scale) V without ever storing the scores: forward with tensor descriptors or block pointers, and backward.

Shapes: q, k, v, o: [batch * heads, length, HEAD], row-major; row sums of exponents as logarithms to base 2 in lse: [batch * heads, length]."""
import numpy as np

import tenon.triton as triton
import tenon.triton.language as tl


@triton.jit
def attend(acc, l_i, m_i, q, k_desc, v_desc, first, end, rows, scale_log2, length, MASKED: tl.constexpr, BLOCK_N: tl.constexpr):
    """One pass over keys [first, end): running maximum m_i, sum l_i and output acc."""
    for start in range(first, end, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)
        cols = start + tl.arange(0, BLOCK_N)
        k = k_desc.load([start, 0])
        s = tl.dot(q, k.T) * scale_log2
        s = tl.where(cols[None, :] < length, s, -1.0e30)
        if MASKED:
            s = tl.where(rows[:, None] >= cols[None, :], s, -1.0e30)
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.math.exp2(s - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = v_desc.load([start, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_new
    return acc, l_i, m_i


@triton.jit
def forward(q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale, length, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr):
    head = tl.program_id(1)
    base = head.to(tl.int64) * length * HEAD
    block = tl.program_id(0)
    q_desc = tl.make_tensor_descriptor(q_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_M, HEAD])
    k_desc = tl.make_tensor_descriptor(k_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    v_desc = tl.make_tensor_descriptor(v_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    o_desc = tl.make_tensor_descriptor(o_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_M, HEAD])
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    scale_log2 = scale * 1.4426950408889634
    q = q_desc.load([block * BLOCK_M, 0])
    if CAUSAL:  # the blocks below the diagonal, then those that it crosses
        acc, l_i, m_i = attend(acc, l_i, m_i, q, k_desc, v_desc, 0, block * BLOCK_M, rows, scale_log2, length, False, BLOCK_N)
        acc, l_i, m_i = attend(acc, l_i, m_i, q, k_desc, v_desc, block * BLOCK_M, (block + 1) * BLOCK_M, rows, scale_log2, length, True, BLOCK_N)
    else:
        acc, l_i, m_i = attend(acc, l_i, m_i, q, k_desc, v_desc, 0, length, rows, scale_log2, length, False, BLOCK_N)
    tl.store(lse_ptr + head * length + rows, m_i + tl.math.log2(l_i), mask=rows < length)
    o_desc.store([block * BLOCK_M, 0], (acc / l_i[:, None]).to(o_ptr.dtype.element_ty))


@triton.jit
def forward_block_pointers(q_ptr, k_ptr, v_ptr, o_ptr, scale, length, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr):
    base = tl.program_id(1).to(tl.int64) * length * HEAD
    block = tl.program_id(0)
    q_block = tl.make_block_ptr(q_ptr + base, (length, HEAD), (HEAD, 1), (block * BLOCK_M, 0), (BLOCK_M, HEAD), (1, 0))
    k_block = tl.make_block_ptr(k_ptr + base, (HEAD, length), (1, HEAD), (0, 0), (HEAD, BLOCK_N), (0, 1))
    v_block = tl.make_block_ptr(v_ptr + base, (length, HEAD), (HEAD, 1), (0, 0), (BLOCK_N, HEAD), (1, 0))
    o_block = tl.make_block_ptr(o_ptr + base, (length, HEAD), (HEAD, 1), (block * BLOCK_M, 0), (BLOCK_M, HEAD), (1, 0))
    m_i = tl.full([BLOCK_M], -float("inf"), dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    for start in range(0, length, BLOCK_N):
        k = tl.load(k_block, boundary_check=(1,), padding_option="zero")
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        s = tl.dot(q, k) * (scale * 1.4426950408889634)
        s = tl.where((start + tl.arange(0, BLOCK_N))[None, :] < length, s, -1.0e30)
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m_i = m_new
        k_block = tl.advance(k_block, (0, BLOCK_N))
        v_block = tl.advance(v_block, (BLOCK_N, 0))
    tl.store(o_block, (acc / l_i[:, None]).to(o_ptr.dtype.element_ty), boundary_check=(0,))


@triton.jit
def backward_delta(o_ptr, do_ptr, delta_ptr, length, BLOCK: tl.constexpr, HEAD: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    head = tl.program_id(1)
    at = head * length * HEAD + rows[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    inside = rows[:, None] < length
    o = tl.load(o_ptr + at, mask=inside, other=0.0).to(tl.float32)
    do = tl.load(do_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(delta_ptr + head * length + rows, tl.sum(o * do, axis=1), mask=rows < length)


@triton.jit
def backward_kv(q_ptr, k_ptr, v_ptr, do_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, scale, length, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                HEAD: tl.constexpr, CAUSAL: tl.constexpr):
    """Scores lie turned, keys by rows, so that weights are left factors as they are."""
    head = tl.program_id(1)
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    d = tl.arange(0, HEAD)
    base = head * length * HEAD
    kv = base + cols[:, None] * HEAD + d[None, :]
    k = tl.load(k_ptr + kv, mask=cols[:, None] < length, other=0.0)
    v = tl.load(v_ptr + kv, mask=cols[:, None] < length, other=0.0)
    dk = tl.zeros([BLOCK_N, HEAD], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD], dtype=tl.float32)
    first = (tl.program_id(0) * BLOCK_N // BLOCK_M) * BLOCK_M if CAUSAL else 0
    for start in range(first, length, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        inside = rows < length
        qo = base + rows[:, None] * HEAD + d[None, :]
        q = tl.load(q_ptr + qo, mask=inside[:, None], other=0.0)
        do = tl.load(do_ptr + qo, mask=inside[:, None], other=0.0)
        lse = tl.load(lse_ptr + head * length + rows, mask=inside, other=float("inf"))  # no weights where there is no row
        delta = tl.load(delta_ptr + head * length + rows, mask=inside, other=0.0)
        p = tl.math.exp2(tl.dot(k, tl.trans(q)) * (scale * 1.4426950408889634) - lse[None, :])
        if CAUSAL:
            p = tl.where(rows[None, :] >= cols[:, None], p, 0.0)
        dv += tl.dot(p.to(do.dtype), do)
        ds = p * (tl.dot(v, tl.trans(do)) - delta[None, :])
        dk += tl.dot(ds.to(q.dtype), q)
    tl.store(dk_ptr + kv, (dk * scale).to(dk_ptr.dtype.element_ty), mask=cols[:, None] < length)
    tl.store(dv_ptr + kv, dv.to(dv_ptr.dtype.element_ty), mask=cols[:, None] < length)


@triton.jit
def backward_q(q_ptr, k_ptr, v_ptr, do_ptr, dq_ptr, lse_ptr, delta_ptr, scale, length, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr,
               CAUSAL: tl.constexpr):
    head = tl.program_id(1)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, HEAD)
    base = head * length * HEAD
    inside = rows < length
    qo = base + rows[:, None] * HEAD + d[None, :]
    q = tl.load(q_ptr + qo, mask=inside[:, None], other=0.0)
    do = tl.load(do_ptr + qo, mask=inside[:, None], other=0.0)
    lse = tl.load(lse_ptr + head * length + rows, mask=inside, other=float("inf"))
    delta = tl.load(delta_ptr + head * length + rows, mask=inside, other=0.0)
    dq = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    end = min((tl.program_id(0) + 1) * BLOCK_M, length) if CAUSAL else length
    for start in range(0, end, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        kv = base + cols[:, None] * HEAD + d[None, :]
        k = tl.load(k_ptr + kv, mask=cols[:, None] < length, other=0.0)
        v = tl.load(v_ptr + kv, mask=cols[:, None] < length, other=0.0)
        p = tl.math.exp2(tl.dot(q, tl.trans(k)) * (scale * 1.4426950408889634) - lse[:, None])
        seen = cols[None, :] < length
        if CAUSAL:
            seen = seen & (rows[:, None] >= cols[None, :])
        p = tl.where(seen, p, 0.0)
        ds = p * (tl.dot(do, tl.trans(v)) - delta[:, None])
        dq += tl.dot(ds.to(k.dtype), k)
    tl.store(dq_ptr + qo, (dq * scale).to(dq_ptr.dtype.element_ty), mask=inside[:, None])


def reference(q, k, v, do, scale, causal):
    q, k, v, do = (x.astype(np.float64) for x in (q, k, v, do))
    s = q @ k.transpose(0, 2, 1) * scale
    if causal:
        s = np.where(np.tril(np.ones(s.shape[1:], bool)), s, -np.inf)
    p = np.exp(s - s.max(axis=2, keepdims=True))
    p /= p.sum(axis=2, keepdims=True)
    o = p @ v
    ds = p * (do @ v.transpose(0, 2, 1) - (o * do).sum(axis=2, keepdims=True))
    return o, ds @ k * scale, ds.transpose(0, 2, 1) @ q * scale, p.transpose(0, 2, 1) @ do


def check():
    rng = np.random.default_rng(8)
    for heads, length, head, causal in [(2, 128, 64, False), (3, 96, 32, True), (1, 77, 64, True), (2, 33, 16, False)]:
        q, k, v, do = (rng.standard_normal((heads, length, head), dtype=np.float32) for _ in range(4))
        scale = head ** -0.5
        o, dq, dk, dv = (np.empty_like(q) for _ in range(4))
        lse, delta = (np.empty((heads, length), np.float32) for _ in range(2))
        grid = (triton.cdiv(length, 32), heads)
        sizes = dict(BLOCK_M=32, BLOCK_N=16, HEAD=head, CAUSAL=causal)
        forward[grid](q, k, v, o, lse, scale, length, **sizes)
        backward_delta[grid](o, do, delta, length, BLOCK=32, HEAD=head)
        backward_kv[(triton.cdiv(length, 16), heads)](q, k, v, do, dk, dv, lse, delta, scale, length, **sizes)
        backward_q[grid](q, k, v, do, dq, lse, delta, scale, length, **sizes)
        for found, wanted in zip((o, dq, dk, dv), reference(q, k, v, do, scale, causal)):
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
        if not causal:
            o2 = np.empty_like(q)
            forward_block_pointers[grid](q, k, v, o2, scale, length, BLOCK_M=32, BLOCK_N=16, HEAD=head)
            np.testing.assert_allclose(o2, reference(q, k, v, do, scale, causal)[0], rtol=2e-4, atol=2e-5)


if __name__ == "__main__":
    check()
    print("attention: equal to NumPy, forward and backward")
