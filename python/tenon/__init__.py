"""Tenon from Python: a thin shell over the C API (include/tenon/tenon.h). `tenon.triton` compiles and launches kernels in Triton's language."""
from ._library import Error, version

__version__ = version()
__all__ = ["Error", "__version__"]
