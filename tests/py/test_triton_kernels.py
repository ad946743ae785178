"""Kernels as people write them, in the styles of the libraries that have many: each on the CPU, compiled and in the checked mode, against NumPy."""
import numpy as np
import pytest

import tenon.triton as triton
import tenon.triton.language as tl
from tenon.triton.language.extra import libdevice

RNG = np.random.default_rng(5)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.fixture(params=[False, True], ids=["compiled", "checked"])
def check(request):
    return request.param


# ---- rotary embedding, in place, of queries and keys; heads of a group share keys ---------------------------------------------------------


@triton.jit
def rope_kernel(q_ptr, q_row_stride, k_ptr, k_row_stride, cos, cos_row_stride, sin, sin_row_stride, sl, bs: tl.constexpr, cos_bs: tl.constexpr,
                n_qh: tl.constexpr, n_kh: tl.constexpr, hd: tl.constexpr, pad_n_qh: tl.constexpr, pad_n_kh: tl.constexpr, pad_hd: tl.constexpr,
                BLOCK_SIZE: tl.constexpr, BACKWARD_PASS: tl.constexpr = False):
    pid = tl.program_id(0).to(tl.int64)
    q_ptr = q_ptr + pid * q_row_stride
    k_ptr = k_ptr + pid * k_row_stride
    batch_idx = pid // sl
    cos_row_idx = pid % sl
    cos = cos + tl.where(cos_bs == 1, cos_row_idx * cos_row_stride, batch_idx * (sl * cos_row_stride) + cos_row_idx * cos_row_stride)
    sin = sin + tl.where(cos_bs == 1, cos_row_idx * sin_row_stride, batch_idx * (sl * sin_row_stride) + cos_row_idx * sin_row_stride)
    cos_offsets = tl.arange(0, pad_hd // 2)
    cos_mask = cos_offsets < hd // 2
    cos_row = tl.load(cos + cos_offsets, mask=cos_mask, other=0)
    sin_row = tl.load(sin + cos_offsets, mask=cos_mask, other=0)
    first_half_q_offsets = tl.arange(0, pad_n_qh)[:, None] * hd + tl.arange(0, pad_hd // 2)[None, :]
    first_half_k_offsets = tl.arange(0, pad_n_kh)[:, None] * hd + tl.arange(0, pad_hd // 2)[None, :]
    first_q_mask = (tl.arange(0, pad_n_qh)[:, None] < n_qh) & (tl.arange(0, pad_hd // 2)[None, :] < hd // 2)
    first_k_mask = (tl.arange(0, pad_n_kh)[:, None] < n_kh) & (tl.arange(0, pad_hd // 2)[None, :] < hd // 2)
    q_tile_1 = tl.load(q_ptr + first_half_q_offsets, mask=first_q_mask, other=0).to(sin_row.dtype)
    k_tile_1 = tl.load(k_ptr + first_half_k_offsets, mask=first_k_mask, other=0).to(sin_row.dtype)
    second_half_q_offsets = first_half_q_offsets + (hd // 2)
    second_half_k_offsets = first_half_k_offsets + (hd // 2)
    q_tile_2 = tl.load(q_ptr + second_half_q_offsets, mask=first_q_mask, other=0).to(sin_row.dtype)
    k_tile_2 = tl.load(k_ptr + second_half_k_offsets, mask=first_k_mask, other=0).to(sin_row.dtype)
    if not BACKWARD_PASS:
        new_q_tile_1 = q_tile_1 * cos_row - q_tile_2 * sin_row
        tl.store(q_ptr + first_half_q_offsets, new_q_tile_1, mask=first_q_mask)
        new_q_tile_2 = q_tile_2 * cos_row + q_tile_1 * sin_row
        tl.store(q_ptr + second_half_q_offsets, new_q_tile_2, mask=first_q_mask)
        tl.store(k_ptr + first_half_k_offsets, k_tile_1 * cos_row - k_tile_2 * sin_row, mask=first_k_mask)
        tl.store(k_ptr + second_half_k_offsets, k_tile_2 * cos_row + k_tile_1 * sin_row, mask=first_k_mask)
    else:
        tl.store(q_ptr + first_half_q_offsets, q_tile_1 * cos_row + q_tile_2 * sin_row, mask=first_q_mask)
        tl.store(q_ptr + second_half_q_offsets, q_tile_2 * cos_row - q_tile_1 * sin_row, mask=first_q_mask)
        tl.store(k_ptr + first_half_k_offsets, k_tile_1 * cos_row + k_tile_2 * sin_row, mask=first_k_mask)
        tl.store(k_ptr + second_half_k_offsets, k_tile_2 * cos_row - k_tile_1 * sin_row, mask=first_k_mask)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rope(check, dtype):
    batch, length, qh, kh, hd = 2, 5, 6, 2, 24
    q, k = normal(batch, length, qh, hd, dtype=dtype), normal(batch, length, kh, hd, dtype=dtype)
    angle = np.arange(length)[:, None] * 10.0 ** -np.arange(hd // 2)[None, :]
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def turned(x, s):
        a, b = x[..., :hd // 2].astype(np.float32), x[..., hd // 2:].astype(np.float32)
        c, s = cos[None, :, None], s * sin[None, :, None]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    tolerance = 1e-6 if dtype == np.float32 else 2e-3
    for backward in (False, True):
        q2, k2 = q.copy(), k.copy()
        rope_kernel[(batch * length,)](q2, qh * hd, k2, kh * hd, cos, hd // 2, sin, hd // 2, length, batch, 1, qh, kh, hd, 8, 2, 32, BLOCK_SIZE=32,
                                       BACKWARD_PASS=backward, check=check)
        np.testing.assert_allclose(q2, turned(q, -1 if backward else 1), atol=tolerance, rtol=tolerance)
        np.testing.assert_allclose(k2, turned(k, -1 if backward else 1), atol=tolerance, rtol=tolerance)


# ---- gated units, forward and backward ------------------------------------------------------------------------------------------------------


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu_forward(a_ptr, b_ptr, c_ptr, stride, n_cols: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    program_id = tl.program_id(0).to(tl.int64)
    a_ptr += program_id * stride
    b_ptr += program_id * stride
    c_ptr += program_id * stride
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    a_row = tl.load(a_ptr + col_offsets, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b_ptr + col_offsets, mask=mask, other=0)
    c_row = silu(a_row).cast(b_row.dtype) * b_row
    tl.store(c_ptr + col_offsets, c_row, mask=mask)


@triton.jit
def swiglu_backward(dc_ptr, a_ptr, b_ptr, stride, n_cols: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    program_id = tl.program_id(0).to(tl.int64)
    dc_ptr += program_id * stride
    a_ptr += program_id * stride
    b_ptr += program_id * stride
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    dc_row = tl.load(dc_ptr + col_offsets, mask=mask, other=0)
    a_row = tl.load(a_ptr + col_offsets, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b_ptr + col_offsets, mask=mask, other=0)
    sig_a = tl.sigmoid(a_row)
    silu_a = a_row * sig_a
    db_row = dc_row * silu_a
    da_row = dc_row * (silu_a * (1 - sig_a) + sig_a) * b_row
    tl.store(a_ptr + col_offsets, da_row, mask=mask)
    tl.store(b_ptr + col_offsets, db_row, mask=mask)


def test_swiglu(check):
    a, b, dc = normal(7, 100), normal(7, 100), normal(7, 100)
    c = np.zeros_like(a)
    swiglu_forward[(7,)](a, b, c, 100, n_cols=100, BLOCK_SIZE=128, num_warps=4, check=check)
    s = 1 / (1 + np.exp(-a.astype(np.float64)))
    np.testing.assert_allclose(c, a * s * b, rtol=1e-5, atol=1e-6)
    da, db = a.copy(), b.copy()
    swiglu_backward[(7,)](dc, da, db, 100, n_cols=100, BLOCK_SIZE=128, check=check)
    np.testing.assert_allclose(db, dc * a * s, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(da, dc * (a * s * (1 - s) + s) * b, rtol=1e-5, atol=1e-6)


# ---- cross entropy by online softmax, with the gradient in place ---------------------------------------------------------------------------


@triton.jit
def cross_entropy(X_ptr, X_stride, Y_ptr, Y_stride, weight_ptr, loss_ptr, z_loss_ptr, loss_stride, n_cols, n_non_ignore, ignore_index, lse_square_scale: tl.constexpr,
                  label_smoothing: tl.constexpr, reduction: tl.constexpr, softcap, RETURN_Z_LOSS: tl.constexpr, BLOCK_SIZE: tl.constexpr, HAS_WEIGHT: tl.constexpr,
                  HAS_SOFTCAPPING: tl.constexpr):
    program_id = tl.program_id(0).to(tl.int64)
    Y_ptr += program_id * Y_stride
    y = tl.load(Y_ptr)
    X_ptr += program_id * X_stride
    if y == ignore_index:
        for i in range(0, n_cols, BLOCK_SIZE):
            X_offsets = i + tl.arange(0, BLOCK_SIZE)
            tl.store(X_ptr + X_offsets, 0.0, mask=X_offsets < n_cols)
        return
    loss_ptr += program_id * loss_stride
    if RETURN_Z_LOSS:
        z_loss_ptr += program_id * loss_stride
    if HAS_WEIGHT:
        weight_y = tl.load(weight_ptr + y).cast(tl.float32)
    m = float("-inf")
    d = 0.0
    ori_X_y = tl.load(X_ptr + y).cast(tl.float32)
    if HAS_SOFTCAPPING:
        ori_X_y = softcap * libdevice.tanh(ori_X_y / softcap)
    scaled_x_sum = 0.0
    eps = label_smoothing / n_cols
    for i in range(0, n_cols, BLOCK_SIZE):
        X_offsets = i + tl.arange(0, BLOCK_SIZE)
        X_block = tl.load(X_ptr + X_offsets, mask=X_offsets < n_cols, other=float("-inf")).cast(tl.float32)
        if HAS_SOFTCAPPING:
            X_block = softcap * libdevice.tanh(X_block / softcap)
        block_max = tl.max(X_block)
        if label_smoothing > 0:
            if HAS_WEIGHT:
                weight_block = tl.load(weight_ptr + X_offsets, mask=X_offsets < n_cols)
                scaled_x_sum += tl.sum(tl.where(X_offsets < n_cols, -eps * X_block * weight_block, 0.0))
            else:
                scaled_x_sum += tl.sum(tl.where(X_offsets < n_cols, -eps * X_block, 0.0))
        m_new = tl.maximum(m, block_max)
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(X_block - m_new))
        m = m_new
    lse = m + tl.log(d)
    for i in range(0, n_cols, BLOCK_SIZE):
        X_offsets = i + tl.arange(0, BLOCK_SIZE)
        X_block = tl.load(X_ptr + X_offsets, mask=X_offsets < n_cols, other=float("-inf")).cast(tl.float32)
        if HAS_SOFTCAPPING:
            intermediate = libdevice.tanh(X_block / softcap)
            X_block = softcap * intermediate
        X_block = tl.exp(X_block - m) / d
        X_block += 2 * lse_square_scale * lse * X_block
        X_block += -eps
        X_block = tl.where(X_offsets != y, X_block, X_block - (1 - label_smoothing))
        if reduction == "mean":
            X_block = X_block / n_non_ignore
        if HAS_SOFTCAPPING:
            X_block = X_block * (1 - intermediate * intermediate)
        tl.store(X_ptr + X_offsets, X_block, mask=X_offsets < n_cols)
    tl.debug_barrier()
    loss = lse - ori_X_y
    if HAS_WEIGHT:
        loss = weight_y * loss
    if label_smoothing > 0:
        smooth_loss = scaled_x_sum + label_smoothing * lse
        loss = loss * (1 - label_smoothing) + smooth_loss
    z_loss = lse_square_scale * lse * lse
    if reduction == "mean":
        z_loss = z_loss / n_non_ignore
        loss = loss / n_non_ignore
    loss += z_loss
    tl.store(loss_ptr, loss)
    if RETURN_Z_LOSS:
        tl.store(z_loss_ptr, z_loss)


@pytest.mark.parametrize("smoothing, scale, cap", [(0.0, 0.0, None), (0.1, 1e-2, None), (0.0, 0.0, 3.0)])
def test_cross_entropy(check, smoothing, scale, cap):
    rows, cols = 5, 300 if cap is None else 384  # what a block has too much is no longer -inf once it is capped
    x = normal(rows, cols) * 4
    y = RNG.integers(0, cols, rows)
    y[2] = -100
    loss, z_loss, out = np.zeros(rows, np.float32), np.zeros(rows, np.float32), x.copy()
    cross_entropy[(rows,)](out, cols, y, 1, None, loss, z_loss, 1, cols, 4, -100, scale, smoothing, "mean", cap, RETURN_Z_LOSS=True, BLOCK_SIZE=128, HAS_WEIGHT=False,
                           HAS_SOFTCAPPING=cap is not None, num_warps=8, check=check)
    w = x.astype(np.float64)
    capped = w if cap is None else cap * np.tanh(w / cap)
    lse = np.log(np.exp(capped - capped.max(1, keepdims=True)).sum(1)) + capped.max(1)
    p = np.exp(capped - lse[:, None])
    hot = np.eye(cols)[np.maximum(y, 0)] * (1 - smoothing) + smoothing / cols
    wanted = (-(hot * capped).sum(1) + lse + scale * lse**2) / 4
    gradient = (p * (1 + 2 * scale * lse[:, None]) - hot) / 4 * (1 if cap is None else 1 - np.tanh(w / cap) ** 2)
    live = y != -100
    np.testing.assert_allclose(loss[live], wanted[live], rtol=1e-5)
    np.testing.assert_allclose(out[live], gradient[live], atol=1e-6)
    assert loss[2] == 0 and (out[2] == 0).all()


# ---- attention over pages of keys and values ------------------------------------------------------------------------------------------------


@triton.jit
def cdiv_fn(x, y):
    return (x + y - 1) // y


@triton.jit
def find_seq_idx(query_start_len_ptr, target_idx, num_seqs, BLOCK_Q: tl.constexpr):
    left: tl.int32 = 0
    right = num_seqs
    while left < right:
        mid = (left + right) // 2
        val = tl.load(query_start_len_ptr + mid)
        mid_val = val // BLOCK_Q + mid
        if mid_val <= target_idx:
            left = mid + 1
        else:
            right = mid
    return left - 1


@triton.jit
def paged_attention(output_ptr, query_ptr, key_cache_ptr, value_cache_ptr, sink_ptr, block_tables_ptr, seq_lens_ptr, scale, num_query_heads: tl.constexpr,
                    num_queries_per_kv: tl.constexpr, block_table_stride: tl.int64, query_stride_0: tl.int64, query_stride_1: tl.int64, BLOCK_SIZE: tl.constexpr,
                    HEAD_SIZE: tl.constexpr, HEAD_SIZE_PADDED: tl.constexpr, SLIDING_WINDOW: tl.constexpr, stride_k_cache_0: tl.int64, stride_k_cache_1: tl.int64,
                    stride_k_cache_2: tl.int64, query_start_len_ptr, BLOCK_Q: tl.constexpr, num_seqs: tl.int32, BLOCK_M: tl.constexpr, USE_SINKS: tl.constexpr):
    q_block_global_idx = tl.program_id(0)
    kv_head_idx = tl.program_id(1)
    seq_idx = find_seq_idx(query_start_len_ptr, q_block_global_idx, num_seqs, BLOCK_Q)
    q_block_start_idx = tl.load(query_start_len_ptr + seq_idx) // BLOCK_Q + seq_idx
    q_block_local_idx = q_block_global_idx - q_block_start_idx
    cur_start = tl.load(query_start_len_ptr + seq_idx)
    cur_stop = tl.load(query_start_len_ptr + seq_idx + 1)
    cur_batch_query_len = cur_stop - cur_start
    if q_block_local_idx * BLOCK_Q >= cur_batch_query_len:
        return
    offs_m = tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD_SIZE_PADDED)
    query_pos = q_block_local_idx * BLOCK_Q + offs_m // num_queries_per_kv
    query_offset_0 = cur_start + query_pos
    query_offset_1 = kv_head_idx * num_queries_per_kv + offs_m % num_queries_per_kv
    query_offset = query_offset_0[:, None] * query_stride_0 + query_offset_1[:, None] * query_stride_1 + offs_d[None, :]
    dim_mask = tl.where(offs_d < HEAD_SIZE, 1, 0).to(tl.int1)
    query_mask_0 = tl.where(query_pos < cur_batch_query_len, 1, 0).to(tl.int1)
    query_mask_1 = tl.where(query_offset_1 < num_query_heads, 1, 0).to(tl.int1)
    Q = tl.load(query_ptr + query_offset, mask=dim_mask[None, :] & query_mask_0[:, None] & query_mask_1[:, None], other=0.0)
    block_table_offset = seq_idx * block_table_stride
    if not USE_SINKS:
        M = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    else:
        M = tl.load(sink_ptr + query_offset_1, mask=query_mask_1, other=float("-inf")).to(dtype=tl.float32)
    L = tl.full([BLOCK_M], 1.0 if USE_SINKS else 0.0, dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_SIZE_PADDED], dtype=tl.float32)
    seq_len = tl.load(seq_lens_ptr + seq_idx)
    context_len = seq_len - cur_batch_query_len
    max_seq_prefix_len = context_len + q_block_local_idx * BLOCK_Q + (BLOCK_M - 1) // num_queries_per_kv + 1
    max_seq_prefix_len = tl.minimum(max_seq_prefix_len, seq_len)
    num_blocks = cdiv_fn(max_seq_prefix_len, BLOCK_SIZE)
    for j in range(0, num_blocks):
        physical_block_idx = tl.load(block_tables_ptr + block_table_offset + j).to(tl.int64)
        offs_n = tl.arange(0, BLOCK_SIZE)
        k_offset = physical_block_idx * stride_k_cache_0 + kv_head_idx * stride_k_cache_2 + offs_d[:, None] + offs_n[None, :] * stride_k_cache_1
        v_offset = physical_block_idx * stride_k_cache_0 + kv_head_idx * stride_k_cache_2 + offs_d[None, :] + offs_n[:, None] * stride_k_cache_1
        K = tl.load(key_cache_ptr + k_offset, mask=dim_mask[:, None], other=0.0)
        V = tl.load(value_cache_ptr + v_offset, mask=dim_mask[None, :], other=0.0)
        seq_offset = j * BLOCK_SIZE + offs_n
        seq_mask = seq_offset[None, :] < context_len + query_pos[:, None] + 1
        S = tl.zeros(shape=(BLOCK_M, BLOCK_SIZE), dtype=tl.float32)
        S += scale * tl.dot(Q, K)
        S = tl.where(query_mask_1[:, None] & query_mask_0[:, None] & seq_mask, S, float("-inf"))
        if SLIDING_WINDOW > 0:
            S = tl.where((context_len + query_pos[:, None] - seq_offset) < SLIDING_WINDOW, S, float("-inf"))
        m_j = tl.maximum(M, tl.max(S, axis=1))
        m_j = tl.where(m_j > float("-inf"), m_j, 0.0)
        P = tl.exp(S - m_j[:, None])
        l_j = tl.sum(P, axis=1)
        alpha = tl.exp(M - m_j)
        acc = acc * alpha[:, None]
        L = L * alpha + l_j
        M = m_j
        acc += tl.dot(P.to(V.dtype), V)
    acc = acc / L[:, None]
    tl.store(output_ptr + query_offset, acc, mask=dim_mask[None, :] & query_mask_0[:, None] & query_mask_1[:, None])


@pytest.mark.parametrize("window, sinks", [(0, False), (9, True)])
def test_paged_attention(check, window, sinks):
    heads, kv_heads, size, page, pages = 4, 2, 24, 16, 12
    query_lens, seq_lens = [1, 5, 13], np.array([20, 5, 40], np.int32)
    starts = np.concatenate([[0], np.cumsum(query_lens)]).astype(np.int32)
    q, keys, values = normal(starts[-1], heads, size), normal(pages, page, kv_heads, size), normal(pages, page, kv_heads, size)
    sink = normal(heads)
    tables = RNG.permutation(pages)[:9].reshape(3, 3).astype(np.int32)
    out = np.zeros_like(q)
    per, block_m = heads // kv_heads, 16
    block_q = block_m // per
    paged_attention[(int(starts[-1]) // block_q + 3, kv_heads)](
        out, q, keys, values, sink if sinks else None, tables, seq_lens, 0.2, heads, per, 3, heads * size, size, page, size, 32, window, keys.strides[0] // 4,
        keys.strides[1] // 4, keys.strides[2] // 4, starts, block_q, 3, block_m, sinks, check=check)
    for s in range(3):
        n, total = query_lens[s], int(seq_lens[s])
        k = keys[tables[s]].reshape(-1, kv_heads, size)[:total].astype(np.float64)
        v = values[tables[s]].reshape(-1, kv_heads, size)[:total].astype(np.float64)
        for h in range(heads):
            score = 0.2 * q[starts[s]:starts[s + 1], h] @ k[:, h // per].T
            at = total - n + np.arange(n)[:, None] - np.arange(total)[None, :]
            score = np.where((at >= 0) & ((at < window) | (window == 0)), score, -np.inf)
            if sinks:
                score = np.concatenate([score, np.full((n, 1), sink[h])], 1)
            p = np.exp(score - score.max(1, keepdims=True))
            p = (p / p.sum(1, keepdims=True))[:, :total]
            np.testing.assert_allclose(out[starts[s]:starts[s + 1], h], p @ v[:, h // per], rtol=2e-5, atol=2e-5)


# ---- norms ------------------------------------------------------------------------------------------------------------------------------------


@triton.jit
def fused_add_rms_norm(in_ptr, residual_ptr, w_ptr, out_ptr, rstd_ptr, in_stride_r, in_stride_c, r_stride_r, r_stride_c, N, eps, offset, CASTING: tl.constexpr,
                       BLOCK_SIZE: tl.constexpr):
    if tl.constexpr(out_ptr.dtype.element_ty == tl.float16) or tl.constexpr(out_ptr.dtype.element_ty == tl.bfloat16):
        cdtype = tl.float32
    else:
        cdtype = out_ptr.dtype.element_ty
    pid = tl.program_id(0)
    in_ptr += pid * in_stride_r
    residual_ptr += pid * r_stride_r
    mask = tl.arange(0, BLOCK_SIZE) < N
    cols = tl.arange(0, BLOCK_SIZE)
    x = tl.load(in_ptr + cols * in_stride_c, mask, other=0.0).to(cdtype)
    r = tl.load(residual_ptr + cols * r_stride_c, mask, other=0.0).to(cdtype)
    x += r
    tl.store(residual_ptr + cols * r_stride_c, x, mask=mask)
    var = tl.sum(x * x / N, axis=0)
    rrms = 1 / tl.sqrt(var + eps)
    tl.store(rstd_ptr + pid, rrms)
    w = tl.load(w_ptr + tl.arange(0, BLOCK_SIZE), mask=mask, other=0.0)
    y = (x * rrms).to(out_ptr.dtype.element_ty) * (offset + w)
    tl.store(out_ptr + pid * in_stride_r + cols * in_stride_c, y, mask=mask)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_rms_norm(check, dtype):
    x, r, w = normal(6, 100, dtype=dtype), normal(6, 100, dtype=dtype), normal(100, dtype=dtype)
    out, rstd, residual = np.zeros_like(x), np.zeros(6, np.float32), r.copy()
    fused_add_rms_norm[(6,)](x, residual, w, out, rstd, 100, 1, 100, 1, 100, 1e-6, 1.0, "gemma", BLOCK_SIZE=128, check=check)
    s = x.astype(np.float64) + r
    scale = 1 / np.sqrt((s * s).mean(1) + 1e-6)
    tolerance = {np.float16: 1e-2, np.float32: 1e-5, np.float64: 1e-6}[dtype]
    np.testing.assert_allclose(out, s * scale[:, None] * (1 + w.astype(np.float64)), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(residual, s, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(rstd, scale, rtol=1e-5)


@triton.jit
def welford_func(mean_1, count_1, M_1, mean_2, count_2, M_2):
    count = count_1 + count_2
    _count = tl.maximum(count, 1)
    mc_1 = mean_1 * count_1
    mc_2 = mean_2 * count_2
    mean = (mc_1 + mc_2) / _count
    M = M_1 + mc_1 * mean_1 + M_2 + mc_2 * mean_2 - count * mean * mean
    return mean, count, M


@triton.jit(do_not_specialize=["eps"])
def layer_norm_welford(X, Y, W, B, Mean, Rstd, M, N, eps, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    pid = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    X = X + pid * N
    Y = Y + pid * N
    row_mask = pid < M
    _mean = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    _m2 = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    _count = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for off in range(0, N, BLOCK_N):
        cols = off + tl.arange(0, BLOCK_N)[None, :]
        mask = row_mask and cols < N
        x = tl.load(X + cols, mask, other=0.0).to(tl.float32)
        count = _count + mask
        cnt = tl.maximum(count, 1)
        cur_mean = (_mean * _count + x) / cnt
        _m2 += (x - cur_mean) * (x - _mean) * mask
        _mean = tl.where(mask, cur_mean, _mean)
        _count = count
    mean, count, m2 = tl.reduce((_mean, _count, _m2), axis=1, combine_fn=welford_func)
    var = m2 / count
    rstd = tl.math.rsqrt(var + eps)
    mean_bc = mean[:, None]
    rstd_bc = rstd[:, None]
    tl.store(Mean + pid, mean_bc, mask=row_mask)
    tl.store(Rstd + pid, rstd_bc, row_mask)
    for off in range(0, N, BLOCK_N):
        cols = off + tl.arange(0, BLOCK_N)[None, :]
        mask = row_mask and cols < N
        w = tl.load(W + cols, cols < N) if W is not None else 1.0
        b = tl.load(B + cols, cols < N) if B is not None else 0.0
        x = tl.load(X + cols, mask, other=0.0).to(tl.float32)
        tl.store(Y + cols, (x - mean_bc) * rstd_bc * w + b, mask=mask)


@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_by_welford(check, affine):
    x = normal(11, 130) * 3 + 1
    w, b = (normal(130), normal(130)) if affine else (None, None)
    y, mean, rstd = np.zeros_like(x), np.zeros(11, np.float32), np.zeros(11, np.float32)
    layer_norm_welford[(3,)](x, y, w, b, mean, rstd, 11, 130, 1e-5, BLOCK_M=4, BLOCK_N=32, check=check)
    d = x.astype(np.float64)
    scale = 1 / np.sqrt(d.var(1) + 1e-5)
    wanted = (d - d.mean(1, keepdims=True)) * scale[:, None]
    np.testing.assert_allclose(y, wanted * w + b if affine else wanted, atol=2e-5)
    np.testing.assert_allclose(rstd, scale, rtol=1e-5)


# ---- int4 weights -----------------------------------------------------------------------------------------------------------------------------


@triton.jit
def quantize_rows(x_ptr, q_ptr, s_ptr, N: tl.constexpr, GROUP: tl.constexpr):
    row = tl.program_id(0)
    group = tl.program_id(1)
    even = group * GROUP + tl.arange(0, GROUP // 2) * 2
    lo = tl.load(x_ptr + row * N + even)
    hi = tl.load(x_ptr + row * N + even + 1)
    scale = tl.maximum(tl.max(tl.abs(lo)), tl.max(tl.abs(hi))) / 7.0
    scale = tl.where(scale == 0, 1.0, scale)
    lo_q = libdevice.rint(tl.div_rn(lo, scale)).to(tl.int8)
    hi_q = libdevice.rint(tl.div_rn(hi, scale)).to(tl.int8)
    packed = (lo_q & 0xF) | (hi_q << 4)
    tl.store(q_ptr + row * (N // 2) + even // 2, packed)
    tl.store(s_ptr + row * (N // GROUP) + group, scale)


@triton.jit
def awq_like_gemm(a_ptr, b_ptr, scales_ptr, zeros_ptr, c_ptr, M, N, K, group_size, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid = tl.program_id(axis=0)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    pid_m = pid // num_pid_n
    pid_n = pid % num_pid_n
    reverse_order = ((tl.arange(0, 2) * 4)[None, :] + tl.arange(0, 4)[:, None]).reshape(8)
    shifts = reverse_order * 4
    shifts = tl.broadcast_to(shifts[None, :], (BLOCK_K * (BLOCK_N // 8), 8))
    shifts = tl.reshape(shifts, (BLOCK_K, BLOCK_N))
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    offsets_am = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offsets_bn = pid_n * (BLOCK_N // 8) + tl.arange(0, BLOCK_N // 8)
    offsets_z = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offsets_k = tl.arange(0, BLOCK_K)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        rows = k * BLOCK_K + offsets_k
        a = tl.load(a_ptr + K * offsets_am[:, None] + rows[None, :], mask=(offsets_am < M)[:, None] & (rows < K)[None, :], other=0.0)
        b = tl.load(b_ptr + (N // 8) * rows[:, None] + offsets_bn[None, :], mask=(rows < K)[:, None] & (offsets_bn < N // 8)[None, :], other=0)
        b = tl.interleave(b, b)
        b = tl.interleave(b, b)
        b = tl.interleave(b, b)
        group = rows // group_size
        scales = tl.load(scales_ptr + group[:, None] * N + offsets_z[None, :], mask=offsets_z[None, :] < N, other=0.0)
        zeros = tl.load(zeros_ptr + group[:, None] * (N // 8) + offsets_bn[None, :], mask=offsets_bn[None, :] < N // 8, other=0)
        zeros = tl.interleave(zeros, zeros)
        zeros = tl.interleave(zeros, zeros)
        zeros = tl.interleave(zeros, zeros)
        b = (b >> shifts) & 0xF
        zeros = (zeros >> shifts) & 0xF
        b = (b - zeros) * scales
        b = b.to(c_ptr.type.element_ty)
        accumulator = tl.dot(a, b, accumulator, out_dtype=tl.float32)
    c = accumulator.to(c_ptr.type.element_ty)
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    tl.store(c_ptr + N * offs_cm[:, None] + offs_cn[None, :], c, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


def test_quantize(check):
    x = normal(5, 64)
    x[3, :16] = 0
    q, s = np.zeros((5, 32), np.int8), np.zeros((5, 4), np.float32)
    quantize_rows[(5, 4)](x, q, s, 64, 16, check=check)
    groups = x.reshape(5, 4, 16)
    scale = np.abs(groups).max(-1) / np.float32(7)
    scale[scale == 0] = 1
    wanted = np.rint(groups / scale[..., None]).astype(np.int8).reshape(5, 64)
    np.testing.assert_allclose(s, scale, rtol=3e-7)
    got = np.stack([((q & 0xF) ^ 8) - 8, q >> 4], -1).reshape(5, 64)
    assert np.abs(got.astype(int) - wanted).max() <= 1 and (got != wanted).mean() < 0.02


def test_product_with_int4(check):
    m, n, k, group = 20, 64, 96, 32
    a = normal(m, k, dtype=np.float16)
    b, z = RNG.integers(0, 16, (k, n)), RNG.integers(0, 16, (k // group, n))
    s = (RNG.random((k // group, n)) / 8).astype(np.float16)
    order = np.array([0, 4, 1, 5, 2, 6, 3, 7])

    def packed(v):
        v = v.reshape(v.shape[0], -1, 8).astype(np.uint64)
        return (v << (order * 4).astype(np.uint64)).sum(-1).astype(np.uint32).view(np.int32)

    c = np.zeros((m, n), np.float16)
    awq_like_gemm[(2 * 2,)](a, packed(b), s, packed(z), c, m, n, k, group, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32, check=check)
    weights = ((b - np.repeat(z, group, 0)) * np.repeat(s, group, 0)).astype(np.float16)
    np.testing.assert_allclose(c, a.astype(np.float64) @ weights, rtol=2e-3, atol=2e-3)


# ---- routing to the best k experts ---------------------------------------------------------------------------------------------------------


@triton.jit
def get_topmask_and_fullmask(x):
    tl.static_assert(x.dtype.is_int_unsigned(), "floating-point value must be passed as bits")
    tm: tl.constexpr = 1 << (-1 + x.dtype.primitive_bitwidth)
    fm: tl.constexpr = (1 << x.dtype.primitive_bitwidth) - 1
    tm_arr = tl.full(x.shape, tm, dtype=x.dtype)
    fm_arr = tl.full(x.shape, fm, dtype=x.dtype)
    return tm_arr, fm_arr


@triton.jit
def fpval_to_key(x):
    tm, fm = get_topmask_and_fullmask(x)
    return x ^ tl.where((x & tm) != 0, fm, tm)


@triton.jit
def key_to_fpval(x):
    tm, fm = get_topmask_and_fullmask(x)
    return x ^ tl.where((x & tm) == 0, fm, tm)


@triton.jit
def routing_topk(X, stride_xm, Yv, Yi, stride_ym, Hist, n_rows, n_expts_tot, BLOCK_M: tl.constexpr, N_EXPTS_PAD: tl.constexpr, N_EXPTS_ACT: tl.constexpr,
                 BLOCK_N: tl.constexpr):
    x_nbits: tl.constexpr = X.dtype.element_ty.primitive_bitwidth
    x_utype: tl.constexpr = tl.core.get_int_dtype(x_nbits, signed=False)
    if x_nbits < 16:
        y_nbits: tl.constexpr = 32
    else:
        y_nbits: tl.constexpr = x_nbits * 2
    x_ultype: tl.constexpr = tl.core.get_int_dtype(y_nbits, signed=False)
    x_dtype: tl.constexpr = X.dtype.element_ty
    pid = tl.program_id(0)
    offs_m = pid * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = offs_m[:, None] < n_rows
    loop_iterations: tl.constexpr = N_EXPTS_PAD // BLOCK_N - 1
    offs_x_n = loop_iterations * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_n = offs_x_n[None, :] < n_expts_tot
    X_ptrs = X + offs_m[:, None] * stride_xm + offs_x_n[None, :]
    x = tl.load(X_ptrs, mask=(mask_m & mask_n), other=float("-inf"))
    x = fpval_to_key(x.to(x_utype, bitcast=True))
    x = (x.to(x_ultype) << 16) | (0xFFFF - offs_x_n).to(x_ultype)[None, :]
    acc = tl.topk(x, N_EXPTS_ACT, dim=1)
    for _i in (tl.static_range if loop_iterations <= 4 else range)(loop_iterations):
        acc = tl.bitonic_merge(acc)
        X_ptrs -= BLOCK_N
        offs_x_n -= BLOCK_N
        x = tl.load(X_ptrs, mask=mask_m, other=float("-inf"))
        x = fpval_to_key(x.to(x_utype, bitcast=True))
        x = (x.to(x_ultype) << 16) | (0xFFFF - offs_x_n).to(x_ultype)[None, :]
        acc = tl.maximum(acc, tl.topk(x, N_EXPTS_ACT, dim=1))
    acc = tl.sort(acc, dim=1, descending=True)
    y_indices = (0xFFFF - (acc & 0xFFFF)).to(tl.int32)
    y_values = key_to_fpval((acc >> 16).to(x_utype)).to(x_dtype, bitcast=True)
    y_values = tl.softmax(y_values.to(tl.float32), dim=1, keep_dims=True).to(x_dtype)
    offs_y_n = tl.arange(0, N_EXPTS_ACT)
    tl.store(Yv + offs_m[:, None] * stride_ym + offs_y_n[None, :], y_values, mask=mask_m)
    tl.store(Yi + offs_m[:, None] * stride_ym + offs_y_n[None, :], y_indices, mask=mask_m)
    rows = tl.broadcast_to(mask_m, (BLOCK_M, N_EXPTS_ACT))
    hist = tl.histogram(tl.ravel(y_indices), N_EXPTS_PAD, mask=tl.ravel(rows))
    tl.atomic_add(Hist + tl.arange(0, N_EXPTS_PAD), hist, mask=tl.arange(0, N_EXPTS_PAD) < n_expts_tot, sem="relaxed")


@pytest.mark.parametrize("dtype, block", [(np.float32, 64), (np.float16, 32)])
def test_routing(check, dtype, block):
    rows, experts, k = 10, 60, 4
    x = normal(rows, experts, dtype=dtype)
    values, index, hist = np.zeros((rows, k), dtype), np.zeros((rows, k), np.int32), np.zeros(experts, np.int32)
    routing_topk[(3,)](x, experts, values, index, k, hist, rows, experts, BLOCK_M=4, N_EXPTS_PAD=64, N_EXPTS_ACT=k, BLOCK_N=block, check=check)
    wanted = np.argsort(-x.astype(np.float64), axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(x, wanted, 1).astype(np.float64)
    p = np.exp(best - best.max(1, keepdims=True))
    np.testing.assert_array_equal(index, wanted)
    np.testing.assert_allclose(values, p / p.sum(1, keepdims=True), rtol=1e-5 if dtype == np.float32 else 1e-3)
    np.testing.assert_array_equal(hist, np.bincount(wanted.ravel(), minlength=experts))


# ---- scans -----------------------------------------------------------------------------------------------------------------------------------


@triton.jit
def first_order_op(fl, xl, fr, xr):
    f = fr * fl
    x = fr * xl + xr
    return f, x


@triton.jit
def selective_scan(u, delta, A, B, C, D, z, out, state, length, dim, N: tl.constexpr, CHUNK: tl.constexpr, HAS_D: tl.constexpr, HAS_Z: tl.constexpr):
    batch = tl.program_id(0)
    d = tl.program_id(1)
    n = tl.arange(0, N)
    a = tl.load(A + d * N + n)
    h = tl.zeros((N,), dtype=tl.float32)
    base = (batch * dim + d) * length
    for start in tl.range(0, length, CHUNK, num_stages=2):
        t = start + tl.arange(0, CHUNK)
        inside = t < length
        u_t = tl.load(u + base + t, mask=inside, other=0.0)
        dt = tl.load(delta + base + t, mask=inside, other=0.0)
        dt = tl.where(dt <= 20.0, libdevice.log1p(tl.exp(dt)), dt)
        dt = tl.where(inside, dt, 0.0)
        b = tl.load(B + (batch * length + t)[:, None] * N + n[None, :], mask=inside[:, None], other=0.0)
        c = tl.load(C + (batch * length + t)[:, None] * N + n[None, :], mask=inside[:, None], other=0.0)
        decay = tl.exp(dt[:, None] * a[None, :])
        x = (dt * u_t)[:, None] * b
        f, s = tl.associative_scan((decay, x), 0, first_order_op)
        hs = f * h[None, :] + s
        y = tl.sum(hs * c, 1)
        last = tl.arange(0, CHUNK) == CHUNK - 1
        h = tl.sum(tl.where(last[:, None], hs, 0.0), 0)
        if HAS_D:
            y += u_t * tl.load(D + d)
        if HAS_Z:
            gate = tl.load(z + base + t, mask=inside, other=0.0)
            y *= gate * tl.sigmoid(gate)
        tl.store(out + base + t, y, mask=inside)
    tl.store(state + (batch * dim + d) * N + n, h)


def test_selective_scan(check):
    batch, dim, length, n = 2, 3, 37, 8
    u, delta, z = normal(batch, dim, length), normal(batch, dim, length), normal(batch, dim, length)
    a, b, c, skip = -np.exp(normal(dim, n)), normal(batch, length, n), normal(batch, length, n), normal(dim)
    out, state = np.zeros_like(u), np.zeros((batch, dim, n), np.float32)
    selective_scan[(batch, dim)](u, delta, a, b, c, skip, z, out, state, length, dim, n, CHUNK=16, HAS_D=True, HAS_Z=True, check=check)
    h, wanted = np.zeros((batch, dim, n)), np.zeros(u.shape)
    dt = np.log1p(np.exp(delta.astype(np.float64)))
    for t in range(length):
        h = np.exp(dt[:, :, t, None] * a) * h + (dt * u)[:, :, t, None] * b[:, None, t]
        wanted[:, :, t] = (h * c[:, None, t]).sum(-1)
    wanted = (wanted + u * skip[:, None]) * z / (1 + np.exp(-z.astype(np.float64)))
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(state, h, rtol=1e-4, atol=1e-4)


@triton.jit
def causal_conv1d(x_ptr, w_ptr, bias_ptr, conv_state_ptr, cache_indices_ptr, has_initial_ptr, query_start_loc_ptr, o_ptr, dim: tl.constexpr, state_len: tl.constexpr,
                  stride_x_dim: tl.constexpr, stride_x_token: tl.constexpr, pad_slot_id: tl.constexpr, KERNEL_WIDTH: tl.constexpr, SILU_ACTIVATION: tl.constexpr,
                  HAS_BIAS: tl.constexpr, BLOCK_N: tl.constexpr):
    idx_seq = tl.program_id(0)
    idx_feats = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    sequence_start_index = tl.load(query_start_loc_ptr + idx_seq)
    seqlen = tl.load(query_start_loc_ptr + idx_seq + 1) - sequence_start_index
    conv_state_batch_coord = tl.load(cache_indices_ptr + idx_seq).to(tl.int64)
    if conv_state_batch_coord == pad_slot_id:
        return
    mask = idx_feats < dim
    conv_states_base = conv_state_ptr + conv_state_batch_coord * dim * state_len + idx_feats * state_len
    load_init_state = tl.load(has_initial_ptr + idx_seq).to(tl.int1)
    if load_init_state:
        col0 = tl.load(conv_states_base + 0, mask, 0.0)
        col1 = tl.load(conv_states_base + 1, mask, 0.0)
        if KERNEL_WIDTH >= 4:
            col2 = tl.load(conv_states_base + 2, mask, 0.0)
    else:
        col0 = tl.zeros((BLOCK_N,), dtype=x_ptr.dtype.element_ty)
        col1 = tl.zeros((BLOCK_N,), dtype=x_ptr.dtype.element_ty)
        if KERNEL_WIDTH >= 4:
            col2 = tl.zeros((BLOCK_N,), dtype=x_ptr.dtype.element_ty)
    if HAS_BIAS:
        acc_preload = tl.load(bias_ptr + idx_feats, mask=mask, other=0.0).to(tl.float32)
    else:
        acc_preload = tl.zeros((BLOCK_N,), dtype=tl.float32)
    w_base = w_ptr + idx_feats * KERNEL_WIDTH
    w_col0 = tl.load(w_base + 0, mask, other=0.0)
    w_col1 = tl.load(w_base + 1, mask, other=0.0)
    w_col2 = tl.load(w_base + 2, mask, other=0.0)
    if KERNEL_WIDTH >= 4:
        w_col3 = tl.load(w_base + 3, mask, other=0.0)
    x_base_1d = x_ptr + sequence_start_index * stride_x_token + idx_feats * stride_x_dim
    mask_x_1d = idx_feats < dim
    for idx_token in range(seqlen):
        acc = acc_preload
        matrix_w = w_col0
        matrix_x = col0
        for j in tl.static_range(KERNEL_WIDTH):
            if KERNEL_WIDTH == 3:
                if j == 1:
                    matrix_w = w_col1
                    matrix_x = col1
                elif j == 2:
                    matrix_w = w_col2
                    matrix_x = tl.load(x_base_1d + idx_token * stride_x_token, mask=mask_x_1d)
            elif KERNEL_WIDTH == 4:
                if j == 1:
                    matrix_w = w_col1
                    matrix_x = col1
                elif j == 2:
                    matrix_w = w_col2
                    matrix_x = col2
                elif j == 3:
                    matrix_w = w_col3
                    matrix_x = tl.load(x_base_1d + idx_token * stride_x_token, mask=mask_x_1d)
            acc += matrix_x * matrix_w
        if KERNEL_WIDTH == 3:
            col0 = col1
            col1 = matrix_x
        elif KERNEL_WIDTH == 4:
            col0 = col1
            col1 = col2
            col2 = matrix_x
        if SILU_ACTIVATION:
            acc = acc / (1 + tl.exp(-acc))
        tl.store(o_ptr + (sequence_start_index + idx_token) * stride_x_token + idx_feats * stride_x_dim, acc, mask=mask_x_1d)
    tl.store(conv_states_base + 0, col0, mask)
    tl.store(conv_states_base + 1, col1, mask)
    if KERNEL_WIDTH >= 4:
        tl.store(conv_states_base + 2, col2, mask)


@pytest.mark.parametrize("width", [3, 4])
def test_conv1d(check, width):
    dim, lens = 20, [1, 7, 3, 12]
    starts = np.concatenate([[0], np.cumsum(lens)]).astype(np.int32)
    x, w, bias = normal(starts[-1], dim), normal(dim, width), normal(dim)
    state = normal(6, dim, width - 1)
    slots, initial = np.array([4, 1, -1, 2], np.int32), np.array([True, False, True, True])
    out, after = np.zeros_like(x), state.copy()
    causal_conv1d[(4, 2)](x, w, bias, after, slots, initial, starts, out, dim, width - 1, 1, dim, -1, width, True, True, BLOCK_N=16, check=check)
    for s, n in enumerate(lens):
        rows = slice(starts[s], starts[s + 1])
        if slots[s] < 0:
            assert (out[rows] == 0).all()
            continue
        past = state[slots[s]].T if initial[s] else np.zeros((width - 1, dim))
        full = np.concatenate([past, x[rows]]).astype(np.float64)
        y = bias + sum(full[j:j + n] * w[:, j] for j in range(width))
        np.testing.assert_allclose(out[rows], y / (1 + np.exp(-y)), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(after[slots[s]], full[-(width - 1):].T.astype(np.float32))
