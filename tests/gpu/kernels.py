"""Kernels that tests/gpu/run.py runs. The same text is given to Triton as a peer, with the imports changed."""
import tenon.triton as triton
import tenon.triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside), mask=inside)


@triton.jit
def gelu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside).to(tl.float32)
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    y = 0.5 * x * (2.0 - 2.0 / (tl.exp(2.0 * inner) + 1.0))
    tl.store(out_ptr + at, y, mask=inside)


@triton.jit
def softmax(out_ptr, in_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(in_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    x = x - tl.max(x, axis=0)
    e = tl.exp(x)
    tl.store(out_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=cols < n_cols)


@triton.jit
def layer_norm(x_ptr, w_ptr, b_ptr, out_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n_cols
    centred = tl.where(inside, x - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / n_cols + eps)
    w = tl.load(w_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * n_cols + cols, centred * scale * w + b, mask=inside)


@triton.jit
def rms_norm(x_ptr, w_ptr, out_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    w = tl.load(w_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * n_cols + cols, x * scale * w, mask=inside)


@triton.jit
def row_sum(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


@triton.jit
def row_sums(x_ptr, out_ptr, n_rows, n_cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Several short rows a program."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=(rows[:, None] < n_rows) & (cols[None, :] < n_cols), other=0.0).to(tl.float32)
    tl.store(out_ptr + rows, tl.sum(x, axis=1), mask=rows < n_rows)


@triton.jit
def strip_sum(x_ptr, out_ptr, n, BLOCK: tl.constexpr, STRIP: tl.constexpr):
    """Sums of STRIP elements each."""
    first = tl.program_id(0) * STRIP
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for at in range(0, STRIP, BLOCK):
        here = first + at + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + here, mask=here < n, other=0.0).to(tl.float32)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def column_sum(x_ptr, out_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr, STRIP: tl.constexpr):
    """Sums of STRIP rows each; the second grid axis walks over strips."""
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    first = tl.program_id(1) * STRIP
    total = tl.zeros([ROWS, COLS], dtype=tl.float32)
    for r in range(0, STRIP, ROWS):
        rows = first + r + tl.arange(0, ROWS)
        inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        total += tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + tl.program_id(1) * n_cols + cols, tl.sum(total, axis=0), mask=cols < n_cols)


@triton.jit
def transpose(x_ptr, out_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=(rows[:, None] < n_rows) & (cols[None, :] < n_cols))
    tl.store(out_ptr + cols[:, None] * n_rows + rows[None, :], tl.trans(x), mask=(cols[:, None] < n_cols) & (rows[None, :] < n_rows))


@triton.jit
def scan_rows(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * n_cols + cols, tl.cumsum(x, axis=0), mask=cols < n_cols)


@triton.jit
def argmax_rows(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    tl.store(out_ptr + row, tl.argmax(x, axis=0))


@triton.jit
def grouped(M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of this program's tile: columns of GROUP tiles one after another."""
    pid = tl.program_id(0)
    pids_m = tl.cdiv(M, BM)
    pids_n = tl.cdiv(N, BN)
    in_group = GROUP * pids_n
    first_m = (pid // in_group) * GROUP
    size_m = min(pids_m - first_m, GROUP)
    return first_m + (pid % in_group) % size_m, (pid % in_group) // size_m


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pm, pn = grouped(M, N, BM, BN, GROUP)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a_ptrs = a_ptr + rm[:, None] * K + rk[None, :]
    b_ptrs = b_ptr + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptrs, mask=(rm[:, None] < M) & (k + rk[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(k + rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(a, b)
        a_ptrs += BK
        b_ptrs += BK * N
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(c_ptr.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def matmul_precise(a_ptr, b_ptr, c_ptr, M, N, K, B_K, B_N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr):
    """Any factors, a right one that lies either way (strides B_K, B_N), sums in SUM."""
    pm, pn = grouped(M, N, BM, BN, GROUP)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a_ptrs = a_ptr + rm[:, None] * K + rk[None, :]
    b_ptrs = b_ptr + rk[:, None] * B_K + rn[None, :] * B_N
    acc = tl.zeros((BM, BN), dtype=SUM)
    for k in range(0, K, BK):
        a = tl.load(a_ptrs, mask=(rm[:, None] < M) & (k + rk[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(k + rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision=PRECISION)
        a_ptrs += BK
        b_ptrs += BK * B_K
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(c_ptr.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def matmul_scaled(a_ptr, b_ptr, as_ptr, bs_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """[M, K] by [N, K] transposed; a scale for each row and BK of k of the left factor, and for 128 x BK of the right one. Rows and columns past the last wrap around."""
    pm, pn = grouped(M, N, BM, BN, GROUP)
    tl.assume(pm >= 0)
    tl.assume(pn >= 0)
    rm = (pm * BM + tl.arange(0, BM)) % M
    rn = (pn * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    strips = tl.cdiv(K, BK)
    a_ptrs = a_ptr + rm[:, None] * K + rk[None, :]
    b_ptrs = b_ptr + rk[:, None] + rn[None, :] * K
    as_ptrs = as_ptr + rm * strips
    bs_ptrs = bs_ptr + rn // 128 * strips
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(strips):
        a = tl.load(a_ptrs, mask=rk[None, :] < K - i * BK, other=0.0)
        b = tl.load(b_ptrs, mask=rk[:, None] < K - i * BK, other=0.0)
        acc += tl.dot(a, b) * tl.load(as_ptrs)[:, None] * tl.load(bs_ptrs)[None, :]
        a_ptrs += BK
        b_ptrs += BK
        as_ptrs += 1
        bs_ptrs += 1
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(c_ptr.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def in_turns(head, CAUSAL: tl.constexpr):
    """This program's block. Where blocks differ in what they have to do, the other way round for every second head, so that CTAs that walk many programs get alike."""
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.where(head % 2 == 0, block, tl.num_programs(0) - 1 - block)
    return block


@triton.jit
def attend(acc, l_i, m_i, q, k_desc, v_desc, first, end, rows, scale_log2, length, MASKED: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr):
    """Over the keys [first, end), of which rows may not see all if MASKED: maxima, sums of weights and of values so far. The scale is above 0."""
    for start in range(first, end, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        k = k_desc.load([start, 0])
        s = tl.dot(q, k.T)
        if MASKED:
            seen = cols[None, :] < length
            if CAUSAL:
                seen = seen & (rows[:, None] >= cols[None, :])
            s = tl.where(seen, s, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(s, 1) * scale_log2)
        p = tl.exp2(s * scale_log2 - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = v_desc.load([start, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_new
    return acc, l_i, m_i


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale, length, HEAD: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """o = softmax(q k^T scale) v of [heads, length, HEAD], and for the way back lse: logarithms to base 2 of the sums of exponents. BLOCK_N divides BLOCK_M."""
    head = tl.program_id(1)
    first_row = tl.program_id(0) * BLOCK_M
    base = head.to(tl.int64) * length * HEAD
    q_desc = tl.make_tensor_descriptor(q_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_M, HEAD])
    k_desc = tl.make_tensor_descriptor(k_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    v_desc = tl.make_tensor_descriptor(v_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    o_desc = tl.make_tensor_descriptor(o_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_M, HEAD])
    rows = first_row + tl.arange(0, BLOCK_M)
    m_i = tl.full([BLOCK_M], -float("inf"), dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    q = q_desc.load([first_row, 0])
    scale_log2 = scale * 1.4426950408889634
    whole, end = length // BLOCK_N * BLOCK_N, length
    if CAUSAL:
        whole, end = first_row, tl.minimum(first_row + BLOCK_M, length)
    acc, l_i, m_i = attend(acc, l_i, m_i, q, k_desc, v_desc, 0, whole, rows, scale_log2, length, False, CAUSAL, BLOCK_N)
    acc, l_i, m_i = attend(acc, l_i, m_i, q, k_desc, v_desc, whole, end, rows, scale_log2, length, True, CAUSAL, BLOCK_N)
    tl.store(lse_ptr + head * length + rows, m_i + tl.log2(l_i), mask=rows < length)
    o_desc.store([first_row, 0], (acc / l_i[:, None]).to(o_ptr.dtype.element_ty))


@triton.jit
def whole_blocks(length):
    """Rows in memory of what the way back has for each row: nothing lies at the end of a block that does not exist."""
    return tl.cdiv(length, 128) * 128


@triton.jit
def sums_at(head, start, length, HEAD: tl.constexpr, BLOCK: tl.constexpr):
    """Where sums of the rows from start on are added up, [HEAD, BLOCK / 8, 8]: of 8 rows column by column, so that lanes which hold fragments add to whole lines."""
    d = tl.arange(0, HEAD)
    eight = tl.arange(0, BLOCK // 8)
    row = tl.arange(0, 8)
    first = (head.to(tl.int64) * whole_blocks(length) + start) * HEAD
    return first + (d[:, None, None] + eight[None, :, None] * HEAD) * 8 + row[None, None, :]


@triton.jit
def attention_delta(o_ptr, do_ptr, lse_ptr, row_lse_ptr, delta_ptr, sum_ptr, length, HEAD: tl.constexpr, BLOCK: tl.constexpr, CLEAR: tl.constexpr):
    """Sums of o do along rows of HEAD elements, and lse, in rows of whole blocks: what does not exist has no weight. Zeros for what attention_back adds up."""
    head = tl.program_id(1)
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, HEAD)
    at = (head.to(tl.int64) * length + rows[:, None]) * HEAD + d[None, :]
    o = tl.load(o_ptr + at, mask=rows[:, None] < length, other=0.0).to(tl.float32)
    do = tl.load(do_ptr + at, mask=rows[:, None] < length, other=0.0).to(tl.float32)
    first = head.to(tl.int64) * whole_blocks(length)
    tl.store(delta_ptr + first + rows, tl.sum(o * do, axis=1))
    tl.store(row_lse_ptr + first + rows, tl.load(lse_ptr + head * length + rows, mask=rows < length, other=float("inf")))
    if CLEAR:
        tl.store(sum_ptr + sums_at(head, tl.program_id(0) * BLOCK, length, HEAD, BLOCK), tl.zeros([HEAD, BLOCK // 8, 8], dtype=tl.float32))


@triton.jit
def attend_rows(dk, dv, k, v, q_desc, do_desc, lse_ptr, delta_ptr, first, end, cols, scale_log2, MASKED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """What the rows [first, end), of which some do not see all keys if MASKED, add to the derivatives of keys and values. Scores lie turned, so that weights are left factors
    where they are computed."""
    for start in range(first, end, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        q = q_desc.load([start, 0])
        do = do_desc.load([start, 0])
        lse = tl.load(lse_ptr + rows)
        delta = tl.load(delta_ptr + rows)
        p = tl.exp2(tl.dot(k, q.T) * scale_log2 - lse[None, :])
        if MASKED:
            p = tl.where(rows[None, :] >= cols[:, None], p, 0.0)
        dv = tl.dot(p.to(do.dtype), do, dv)
        ds = p * (tl.dot(v, do.T) - delta[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk)
    return dk, dv


@triton.jit
def attention_kv(q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, scale, length, HEAD: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr,
                 BLOCK_N: tl.constexpr):
    """The way back to k and v, by blocks of keys."""
    head = tl.program_id(1)
    first_key = tl.program_id(0) * BLOCK_N
    base = head.to(tl.int64) * length * HEAD
    q_desc = tl.make_tensor_descriptor(q_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_M, HEAD])
    do_desc = tl.make_tensor_descriptor(do_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_M, HEAD])
    k_desc = tl.make_tensor_descriptor(k_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    v_desc = tl.make_tensor_descriptor(v_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    dk_desc = tl.make_tensor_descriptor(dk_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    dv_desc = tl.make_tensor_descriptor(dv_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    cols = first_key + tl.arange(0, BLOCK_N)
    k = k_desc.load([first_key, 0])
    v = v_desc.load([first_key, 0])
    dk = tl.zeros([BLOCK_N, HEAD], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD], dtype=tl.float32)
    lse_ptr += head * whole_blocks(length)
    delta_ptr += head * whole_blocks(length)
    scale_log2 = scale * 1.4426950408889634
    seen = 0
    if CAUSAL:
        seen = tl.cdiv(first_key + BLOCK_N, BLOCK_M) * BLOCK_M
        dk, dv = attend_rows(dk, dv, k, v, q_desc, do_desc, lse_ptr, delta_ptr, first_key // BLOCK_M * BLOCK_M, tl.minimum(seen, length), cols, scale_log2, True, BLOCK_M, BLOCK_N)
    dk, dv = attend_rows(dk, dv, k, v, q_desc, do_desc, lse_ptr, delta_ptr, seen, length, cols, scale_log2, False, BLOCK_M, BLOCK_N)
    dk_desc.store([first_key, 0], (dk * scale).to(dk_ptr.dtype.element_ty))
    dv_desc.store([first_key, 0], dv.to(dv_ptr.dtype.element_ty))


@triton.jit
def attend_keys(dq, q, do, k_desc, v_desc, lse, delta, first, end, rows, scale_log2, length, MASKED: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_N: tl.constexpr):
    """What the keys [first, end), of which rows may not see all if MASKED, add to the derivatives of q. Rows that do not exist have no weight."""
    for start in range(first, end, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        k = k_desc.load([start, 0])
        v = v_desc.load([start, 0])
        p = tl.exp2(tl.dot(q, k.T) * scale_log2 - lse[:, None])
        if MASKED:
            p = tl.where(rows[:, None] >= cols[None, :] if CAUSAL else cols[None, :] < length, p, 0.0)
        ds = p * (tl.dot(do, v.T) - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    return dq


@triton.jit
def attention_q(q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, scale, length, HEAD: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr,
                BLOCK_N: tl.constexpr):
    """The way back to q, by blocks of rows."""
    head = tl.program_id(1)
    first_row = tl.program_id(0) * BLOCK_M
    base = head.to(tl.int64) * length * HEAD
    q_desc = tl.make_tensor_descriptor(q_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_M, HEAD])
    do_desc = tl.make_tensor_descriptor(do_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_M, HEAD])
    k_desc = tl.make_tensor_descriptor(k_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    v_desc = tl.make_tensor_descriptor(v_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    dq_desc = tl.make_tensor_descriptor(dq_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_M, HEAD])
    rows = first_row + tl.arange(0, BLOCK_M)
    q = q_desc.load([first_row, 0])
    do = do_desc.load([first_row, 0])
    lse = tl.load(lse_ptr + head * whole_blocks(length) + rows)
    delta = tl.load(delta_ptr + head * whole_blocks(length) + rows)
    dq = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    scale_log2 = scale * 1.4426950408889634
    whole, end = length // BLOCK_N * BLOCK_N, length
    if CAUSAL:
        whole, end = first_row // BLOCK_N * BLOCK_N, tl.minimum(first_row + BLOCK_M, length)
    dq = attend_keys(dq, q, do, k_desc, v_desc, lse, delta, 0, whole, rows, scale_log2, length, False, CAUSAL, BLOCK_N)
    dq = attend_keys(dq, q, do, k_desc, v_desc, lse, delta, whole, end, rows, scale_log2, length, True, CAUSAL, BLOCK_N)
    dq_desc.store([first_row, 0], (dq * scale).to(dq_ptr.dtype.element_ty))


@triton.jit
def attention_back(q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, sum_ptr, dk_ptr, dv_ptr, scale, length, HEAD: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr,
                   BLOCK_N: tl.constexpr):
    """The way back at once, by blocks of keys: what each adds to q's derivatives it adds to sums in f32, which start at 0."""
    head = tl.program_id(1)
    first_key = tl.program_id(0) * BLOCK_N
    base = head.to(tl.int64) * length * HEAD
    q_desc = tl.make_tensor_descriptor(q_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_M, HEAD])
    do_desc = tl.make_tensor_descriptor(do_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_M, HEAD])
    k_desc = tl.make_tensor_descriptor(k_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    v_desc = tl.make_tensor_descriptor(v_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    dk_desc = tl.make_tensor_descriptor(dk_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    dv_desc = tl.make_tensor_descriptor(dv_ptr + base, shape=[length, HEAD], strides=[HEAD, 1], block_shape=[BLOCK_N, HEAD])
    cols = first_key + tl.arange(0, BLOCK_N)
    d = tl.arange(0, HEAD)
    k = k_desc.load([first_key, 0])
    v = v_desc.load([first_key, 0])
    dk = tl.zeros([BLOCK_N, HEAD], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD], dtype=tl.float32)
    for start in range(first_key // BLOCK_M * BLOCK_M if CAUSAL else 0, length, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        q = q_desc.load([start, 0])
        do = do_desc.load([start, 0])
        lse = tl.load(lse_ptr + head * whole_blocks(length) + rows)
        delta = tl.load(delta_ptr + head * whole_blocks(length) + rows)
        p = tl.exp2(tl.dot(k, q.T) * (scale * 1.4426950408889634) - lse[None, :])
        if CAUSAL:
            p = tl.where(rows[None, :] >= cols[:, None], p, 0.0)
        dv = tl.dot(p.to(do.dtype), do, dv)
        ds = (p * (tl.dot(v, do.T) - delta[None, :])).to(q.dtype)
        dq = tl.dot(k.T, ds)
        dk = tl.dot(ds, q, dk)
        tl.atomic_add(sum_ptr + sums_at(head, start, length, HEAD, BLOCK_M), tl.reshape(dq, [HEAD, BLOCK_M // 8, 8]), sem="relaxed")
    dk_desc.store([first_key, 0], (dk * scale).to(dk_ptr.dtype.element_ty))
    dv_desc.store([first_key, 0], dv.to(dv_ptr.dtype.element_ty))


@triton.jit
def turned_sums(sum_ptr, out_ptr, scale, length, HEAD: tl.constexpr, BLOCK: tl.constexpr):
    """What attention_back has added up, as q's derivatives."""
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, HEAD)
    x = tl.load(sum_ptr + sums_at(head, tl.program_id(0) * BLOCK, length, HEAD, BLOCK)) * scale
    x = tl.reshape(x.to(out_ptr.dtype.element_ty), [HEAD, BLOCK])
    tl.store(out_ptr + (head * length + rows[:, None]) * HEAD + d[None, :], tl.trans(x), mask=rows[:, None] < length)
