import triton
import triton.language as tl


@triton.jit
def k(a, b, c, M, N, K, stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm, pn = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.cdiv(M, BM), tl.cdiv(N, BN), 2)
    rm = pm * BM + tl.arange(0, BM)
    x = tl.make_block_ptr(a, (M, K), (stride, 1), (pm * BM, 0), (BM, BK), (1, 0))
    y = b + tl.arange(0, BK)[:, None] * N + (pn * BN + tl.arange(0, BN))[None, :]
    acc = tl.full([BM, BN], 0, tl.float32)
    for k0 in tl.range(0, K, BK, num_stages=3):
        acc = tl.dot(tl.load(x, boundary_check=(0, 1)), tl.load(y, mask=(k0 + tl.arange(0, BK) < K)[:, None]), acc)
        x = tl.advance(x, (0, BK))
        y += BK * N
    acc = tl.trans(tl.maximum(acc, 0)).to(tl.float16)
    tl.atomic_add(c + rm[None, :], tl.sum(acc, 0, keep_dims=True).to(tl.float32), mask=(rm < M)[None, :])
    tl.static_assert(BM >= 1, f"BM is {BM}")
