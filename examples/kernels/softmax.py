"""Softmax of rows, a row a program; and one whose programs walk over rows."""
import numpy as np

import tenon.triton as triton
import tenon.triton.language as tl


@triton.jit
def fused_softmax(output_ptr, input_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(input_ptr + row * n_cols + cols, mask=cols < n_cols)
    x = x - tl.max(x, axis=0)
    exp_x = tl.exp(x)
    out = exp_x / tl.sum(exp_x, axis=0)
    tl.store(output_ptr + row * n_cols + cols, out, mask=cols < n_cols)


@triton.jit
def softmax_rows(out_ptr, in_ptr, out_stride, in_stride, n_rows, n_cols, BLOCK: tl.constexpr, num_stages: tl.constexpr):
    first = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    for row in tl.range(first, n_rows, tl.num_programs(0), num_stages=num_stages):
        x = tl.load(in_ptr + row * in_stride + cols, mask=inside, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * out_stride + cols, e / tl.sum(e, axis=0), mask=inside)


def reference(x):
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def check():
    rng = np.random.default_rng(1)
    for rows, cols in [(7, 1), (5, 3), (64, 781), (33, 1024), (3, 4097)]:
        x = rng.standard_normal((rows, cols), dtype=np.float32) * 4 - 50  # zeros in masked lanes would be seen
        block = triton.next_power_of_2(cols)
        y = np.empty_like(x)
        fused_softmax[(rows,)](y, x, cols, BLOCK=block)
        np.testing.assert_allclose(y, reference(x), rtol=2e-5, atol=1e-12)
        z = np.empty_like(x)
        softmax_rows[(min(rows, 4),)](z, x, cols, cols, rows, cols, BLOCK=block, num_stages=2)
        np.testing.assert_allclose(z, reference(x), rtol=2e-5, atol=1e-12)


if __name__ == "__main__":
    check()
    print("softmax: equal to NumPy")
