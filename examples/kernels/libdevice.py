"""asin of a vector, from the library of device functions."""
import numpy as np

import tenon.triton as triton
import tenon.triton.language as tl
from tenon.triton.language.extra import libdevice


@triton.jit
def asin_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, libdevice.asin(x), mask=at < n)


def check(n=98_432 + 5):
    x = np.random.default_rng(5).random(n, dtype=np.float32) * 2 - 1
    y = np.empty_like(x)
    asin_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
    np.testing.assert_allclose(y, np.arcsin(x.astype(np.float64)), rtol=1e-6, atol=1e-7)


if __name__ == "__main__":
    check()
    print("libdevice: equal to NumPy")
