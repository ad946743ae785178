"""The memory plan: how near its lower bound on whole networks, and the limit that a user sets."""
import json
import os
import pathlib
import subprocess

import numpy as np
import onnx
import pytest

import blocks
import tenon_api

TENON = os.environ.get("TENON", "build/release/tenon")
LIGHT = sorted((pathlib.Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))


def tenon(*arguments, code=0):
    done = subprocess.run([TENON, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done


def memory(*arguments):
    return json.loads(tenon("info", *arguments, "--json", "--threads=2").stdout)["memory"]


# ---- the bound -------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    """Twelve layers: attention, two products with GELU."""
    b = blocks.Block()
    x = "x"
    for _ in range(12):
        x = blocks.attention_block(b, x, 96, 4)
        x = b.op("Add", x, blocks.gelu_mlp(b, blocks.layer_norm(b, x, 96), 96, 384))
    return b.save(tmp_path_factory.mktemp("transformer") / "transformer.onnx", ["b", "s", 96], x)


def near_the_bound(m):
    assert m["complete"] and m["arena_lower_bound"] <= m["arena_bytes"] <= 1.03 * m["arena_lower_bound"] and m["step"]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_the_plan_is_near_its_bound(path, target):
    near_the_bound(memory(path, f"--target={target}"))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("sizes", [("b=1", "s=128"), ("b=3", "s=37"), ("b=1", "s=1")], ids=" ".join)
def test_the_plan_of_a_transformer_is_near_its_bound(transformer, sizes, target):
    near_the_bound(memory(transformer, f"--target={target}", *(f"--size={size}" for size in sizes)))


def test_the_bound_is_printed(transformer):
    line, = (line for line in tenon("info", transformer, "--size=b=1", "--size=s=64").stdout.splitlines() if "intermediates" in line)
    assert "lower bound" in line and "(1.0" in line


def test_large_values_are_used_one_after_the_other(tmp_path):
    """Six large products that the file has side by side: no more of them are alive than one takes to become small."""
    b = blocks.Block()
    large = [b.op("MatMul", "x", b.weight(64, 1024)) for _ in range(6)]
    small = [b.op("MatMul", value, b.weight(1024, 64)) for value in large]
    while len(small) > 1:
        small = [b.op("Add", *small[:2])] + small[2:]
    m = memory(b.save(tmp_path / "wide.onnx", [256, 64], small[0]))
    assert m["arena_lower_bound"] < 2 * 256 * 1024 * 4


# ---- the limit ---------------------------------------------------------------------------------------------------------------

def save_long_lived(path, rows):
    """A softmax that is used first and last, with larger values in between."""
    b = blocks.Block()
    x = b.op("Softmax", "x", axis=-1)
    h = blocks.gelu(b, blocks.linear(b, x, 64, 128))
    h = blocks.gelu(b, blocks.linear(b, h, 128, 128))
    h = b.op("Add", b.op("MatMul", h, b.weight(128, 64)), x)
    return b.save(path, [rows, 64], b.op("MatMul", h, b.weight(64, 64)))


@pytest.fixture(scope="module")
def long_lived(tmp_path_factory):
    return save_long_lived(tmp_path_factory.mktemp("limit") / "static.onnx", 512)


@pytest.fixture(scope="module")
def long_lived_symbolic(tmp_path_factory):
    return save_long_lived(tmp_path_factory.mktemp("limit") / "symbolic.onnx", "n")


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_results_are_computed_again_to_keep_the_limit(long_lived, target):
    free = memory(long_lived, f"--target={target}")
    limit = free["peak_bytes"] - 1
    capped = memory(long_lived, f"--target={target}", f"--memory-limit={limit}")
    assert capped["peak_bytes"] <= limit and capped["peak_bytes"] == free["peak_bytes"] - 512 * 64 * 4


def test_what_is_computed_again_is_the_same(long_lived, tmp_path):
    limit = memory(long_lived)["peak_bytes"] - 1
    for name, options in (("free", []), ("capped", [f"--memory-limit={limit}"])):
        tenon("run", long_lived, "--threads=2", "--save", tmp_path / name, *options)
    np.testing.assert_array_equal(*(np.load(tmp_path / name / "output_0.npy") for name in ("free", "capped")))
    free, capped = (json.loads(tenon("explain", long_lived, "--no-run", "--json", "--threads=2", *options).stdout) for options in ([], [f"--memory-limit={limit}"]))
    assert len(capped["kernels"]) == len(free["kernels"]) + 1
    names = [k["name"] for k in capped["kernels"]]
    assert names.count(names[0]) == 2 and any("computed again" in e["reason"] for e in capped["unfused"])


@pytest.mark.parametrize("command", [["info"], ["run"], ["bench", "--seconds=0.01"], ["compile", "--emit=tile"], ["explain", "--no-run"]], ids=lambda c: c[0])
def test_a_limit_that_cannot_be_kept_is_refused_with_what_is_missing(long_lived, command):
    m = memory(long_lived)
    limit = m["peak_bytes"] - 512 * 64 * 4 - 1
    error = tenon(*command, long_lived, "--threads=2", f"--memory-limit={limit}", code=1).stderr
    assert str(limit) in error and str(limit + 1) in error and "no placement needs less" in error and m["step"] in error and m["nodes"].split(",")[0] in error


def test_units_of_the_limit(long_lived):
    peak = memory(long_lived)["peak_bytes"]
    for limit in (str(peak), f"{peak // 1024 + 1}K", "64M", "1G"):
        assert memory(long_lived, "--memory-limit", limit)["peak_bytes"] == peak
    for limit in ("", "K", "1.5M", "-1", "0", "1T", "1KB", "99999999999G"):
        assert "memory-limit" in tenon("info", long_lived, f"--memory-limit={limit}", code=2).stderr


def test_a_run_with_larger_sizes_is_refused_before_it_starts(long_lived_symbolic):
    peak = memory(long_lived_symbolic, "--size=n=300")["peak_bytes"]
    network = tenon_api.Model(long_lived_symbolic, threads=2, session_options={"memory-limit": str(peak)})
    for rows in (300, 7, 0, 300):
        assert network(np.ones((rows, 64), np.float32))[0].shape == (rows, 64)
    with pytest.raises(tenon_api.Error, match="memory limit is"):
        network(np.ones((3000, 64), np.float32))
    assert network(np.ones((300, 64), np.float32))[0].shape == (300, 64) # the context serves on


# ---- parts of concatenations ------------------------------------------------------------------------------------------------------

def save_growing(path, rows, layers=6):
    """Each layer reads all features and adds some, as DenseNet does; the first have other users too."""
    b = blocks.Block()
    x = b.op("Relu", "x")
    for i in range(layers):
        new = b.op("Conv", b.op("Relu", b.op("Mul", x, b.weight(1, 8 + 4 * i, 1, 1))), b.weight(4, 8 + 4 * i, 3, 3), pads=[1, 1, 1, 1], kernel_shape=[3, 3])
        x = b.op("Concat", x, new, axis=1)
    return b.save(path, [rows, 8, 9, 9], b.op("ReduceMax", x, axes=[1], keepdims=0), [rows, 9, 9])


@pytest.mark.parametrize("rows", [1, "n"])
def test_features_that_are_added_are_not_copied(tmp_path, rows):
    path = save_growing(tmp_path / "growing.onnx", rows)
    sizes = [] if rows == 1 else ["--size=n=3"]
    report = json.loads(tenon("explain", path, "--no-run", "--json", *sizes).stdout)
    copies = [k for k in report["kernels"] if k["ops"] == ["concatenate"]]
    assert len(copies) <= 1 # what the first features are copied by: others read them
    assert "agrees" in tenon("check", path, "--threads=2", *sizes).stdout


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_equal_parts_and_slices_are_one_kernel(tmp_path, target):
    b = blocks.Block()
    slices = [b.op("Slice", "x", b.constant(np.array([64 * i])), b.constant(np.array([64 * i + 64])), b.constant(np.array([1]))) for i in range(8)]
    parts = [b.op("Softmax", s, axis=-1) for s in slices]
    path = b.save(tmp_path / "parts.onnx", ["n", 512], b.op("Concat", *parts, axis=1), ["n", 512])
    loops = tenon("compile", path, "--emit=loop", f"--target={target}").stdout
    assert loops.count("kernel @") == 1, loops
    assert "agrees" in tenon("check", path, "--threads=2", "--size=n=5").stdout
