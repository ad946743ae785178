"""z = x + y, a block of elements a program."""
import numpy as np

import tenon.triton as triton
import tenon.triton.language as tl


@triton.jit
def vector_add(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    y = tl.load(y_ptr + at, mask=inside)
    tl.store(z_ptr + at, x + y, mask=inside)


def check(n=98_432 + 5):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(n, dtype=np.float32) for _ in range(2))
    z = np.empty_like(x)
    vector_add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, z, n, BLOCK=1024)
    np.testing.assert_array_equal(z, x + y)


if __name__ == "__main__":
    check()
    print("vector_add: equal to NumPy")
