"""Kernels in Triton's language, compiled by Tenon: `import tenon.triton as triton, tenon.triton.language as tl`."""
from .. import Error as CompilationError
from . import language, runtime, testing
from .runtime import Autotuner, Config, Heuristics, JITFunction, autotune, heuristics, jit


def cdiv(x: int, y: int) -> int:
    """x / y, rounded up."""
    return (x + y - 1) // y


def next_power_of_2(n: int) -> int:
    """The least power of two that is not below n; 1 for n <= 1."""
    return 1 << max(int(n) - 1, 0).bit_length()


__all__ = ["Autotuner", "CompilationError", "Config", "Heuristics", "JITFunction", "autotune", "cdiv", "heuristics", "jit", "language", "next_power_of_2",
           "runtime", "testing"]
