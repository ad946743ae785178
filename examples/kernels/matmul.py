"""C = activation(A @ B), blocks of C in groups of rows so that neighbouring programs share what they read."""
import numpy as np

import tenon.triton as triton
import tenon.triton.language as tl


def configurations():
    return [
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP": 8}, num_stages=3, num_warps=8),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP": 8}, num_stages=4, num_warps=4),
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP": 4}, num_stages=5, num_warps=2),
    ]


@triton.jit
def leaky_relu(x, slope: tl.constexpr = 0.01):
    return tl.where(x >= 0, x, slope * x)


@triton.autotune(configs=configurations(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr):
    pid = tl.program_id(axis=0)
    blocks_m = tl.cdiv(M, BLOCK_M)
    blocks_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP * blocks_n
    first_m = (pid // in_group) * GROUP
    rows = min(blocks_m - first_m, GROUP)
    pid_m = first_m + (pid % in_group) % rows
    pid_n = (pid % in_group) // rows

    tl.assume(pid_m >= 0)
    tl.assume(pid_n >= 0)
    tl.assume(stride_am > 0)
    tl.assume(stride_cm > 0)

    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        acc = leaky_relu(acc)
    c = acc.to(c_ptr.dtype.element_ty)

    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, c, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


def matmul(a, b, activation=""):
    (m, k), n = a.shape, b.shape[1]
    c = np.empty((m, n), dtype=a.dtype)
    item = a.itemsize
    matmul_kernel[lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)](
        a, b, c, m, n, k, a.strides[0] // item, a.strides[1] // item, b.strides[0] // item, b.strides[1] // item,
        c.strides[0] // item, c.strides[1] // item, ACTIVATION=activation)
    return c


def check():
    rng = np.random.default_rng(2)
    for m, n, k in [(512, 512, 512), (1, 1, 1), (17, 33, 65), (100, 7, 301)]:
        for dtype, tolerance in ((np.float32, 2e-6), (np.float16, 1e-3)):
            a = (rng.standard_normal((m, k)) / np.sqrt(k)).astype(dtype)
            b = rng.standard_normal((k, n)).astype(dtype)
            wanted = a.astype(np.float64) @ b.astype(np.float64)
            np.testing.assert_allclose(matmul(a, b), wanted, rtol=tolerance, atol=8 * tolerance)
            wanted = np.where(wanted >= 0, wanted, 0.01 * wanted)
            np.testing.assert_allclose(matmul(a, b, "leaky_relu"), wanted, rtol=tolerance, atol=8 * tolerance)


if __name__ == "__main__":
    check()
    print("matmul: equal to NumPy")
