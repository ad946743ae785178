"""Functions in Triton's language that test_triton_python.py calls from another file."""
import tenon.triton as tt
from tenon.triton import language as lang

OFFSET = lang.constexpr(7)


@tt.jit
def shifted(x):
    return x + OFFSET


@tt.jit
def scaled(x, by: lang.constexpr = OFFSET * 2):
    return shifted(x) * by


@tt.autotune([tt.Config({"BLOCK": 4}), tt.Config({"BLOCK": 16})], key=[])
@tt.jit
def tuned_helper(x_ptr, n, BLOCK: lang.constexpr):
    at = lang.arange(0, BLOCK)
    lang.store(x_ptr + at, at * 0 + 5, mask=at < n)
