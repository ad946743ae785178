"""Tensor descriptors that are made on the host and handed to a kernel."""


class TensorDescriptor:
    """Blocks of `block_shape` of a tensor. base: the tensor; shape and strides in elements, the last stride is 1."""

    def __init__(self, base, shape, strides, block_shape, padding="zero"):
        if not (len(shape) == len(strides) == len(block_shape) and len(shape) > 0):
            raise ValueError(f"shape {list(shape)}, strides {list(strides)} and block_shape {list(block_shape)} must have one length, at least 1")
        if strides[-1] != 1:
            raise ValueError(f"the last stride must be 1, found {strides[-1]}")
        if padding != "zero":
            raise ValueError(f"padding must be 'zero', found {padding!r}")
        self.base, self.shape, self.strides, self.block_shape = base, list(shape), list(strides), list(block_shape)

    @classmethod
    def from_tensor(cls, tensor, block_shape, padding="zero"):
        strides = tensor.stride() if callable(getattr(tensor, "stride", None)) else [s // tensor.itemsize for s in tensor.strides]
        return cls(tensor, tensor.shape, strides, block_shape, padding)
