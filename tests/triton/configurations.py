"""Kernels whose configurations a function makes, as people write them."""
import itertools
from itertools import product

import torch
import triton
import triton.language as tl

LARGE = [64, 128]


def is_cuda():
    return triton.runtime.driver.active.get_current_target().backend == "cuda"


def get_cuda_configs(smallest=32):
    """14 of them."""
    configs = []
    for block in [smallest] + LARGE:
        for i, warps in enumerate([2, 4, 8]):
            if block == 32 and warps == 8:
                continue
            if block > 64:
                break
            configs.append(triton.Config({"BLOCK": block, "N": i}, num_warps=warps, num_stages=3))
    n = 256
    while n <= 512:
        configs += [triton.Config(dict(dict(BLOCK=n, N=0), N=9), num_warps=w) for w in (4, 8)]
        n *= 2
    more = {}
    for block, n in product([16, 32], range(1, 3)):
        more["BLOCK"] = block
        more["N"] = n
        configs.append(triton.Config(more))
    configs.extend([triton.Config({"BLOCK": b, "N": n}) for (b, n), _ in zip(itertools.product((8,), (7, 8)), "ab") if n > 7])
    return configs


def get_autotune_config():
    if is_cuda():
        return get_cuda_configs()
    else:
        return []


@triton.autotune(configs=get_autotune_config(), key=["n"])
@triton.jit
def fill(x, n, BLOCK: tl.constexpr, N: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, at + N, mask=at < n)


def of_this_machine():
    configs = []
    for block in (64, 128):
        if block <= torch.cuda.get_device_properties(0).multi_processor_count:
            configs.append(triton.Config({"BLOCK": block}))
    return configs


@triton.autotune(configs=of_this_machine(), key=["n"])
@triton.jit
def by_machine(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, at, mask=at < n)
