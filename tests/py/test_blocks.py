"""Blocks of networks in the three modes of numerics: what fusion makes of them agrees with the reference interpreter. Sizes that no tile divides."""
import os
import subprocess

import pytest

import blocks

TENON = os.environ.get("TENON_CHECKED", os.environ.get("TENON", "build/release/tenon"))
BLOCKS = {
    "attention_block": (lambda b: blocks.attention_block(b, "x", 30, 3), [2, 7, 30], [2, "s", 30]),
    "gelu_mlp": (lambda b: blocks.gelu_mlp(b, "x", 19, 70), [3, 5, 19], [3, "s", 19]),
    "swiglu_mlp": (lambda b: blocks.swiglu_mlp(b, "x", 19, 70), [3, 5, 19], [3, "s", 19]),
    "group_norm": (lambda b: blocks.group_norm(b, "x", 12, 4, (5, 7)), [3, 12, 5, 7], ["s", 12, 5, 7]),
    "exported_group_norm": (lambda b: blocks.exported_group_norm(b, "x", 12, 4), [3, 12, 5, 7], ["s", 12, "h", "w"]),
    "instance_norm": (lambda b: blocks.instance_norm(b, "x", 12, (5, 7)), [3, 12, 5, 7], ["s", 12, 5, 7]),
    "bottleneck": (lambda b: blocks.bottleneck(b, "x", 20, 11), [2, 20, 9, 7], ["s", 20, 9, 7]),
    "wide_bottleneck": (lambda b: blocks.bottleneck(b, "x", 130, 66), [1, 130, 11, 13], ["s", 130, 11, 13]),
}


@pytest.mark.parametrize("numerics", ["strict", "parity", "fast"])
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("block", BLOCKS)
def test_block(block, symbolic, numerics, tmp_path):
    build, known, unknown = BLOCKS[block]
    b = blocks.Block()
    path = b.save(tmp_path / "block.onnx", unknown if symbolic else known, build(b))
    size = [f"--size={name}={n}" for name, n in (("s", 5), ("h", 3), ("w", 7)) if symbolic and name in unknown]
    done = subprocess.run([TENON, "check", str(path), "--option", f"numerics={numerics}", *size], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "agrees" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("numerics", ["strict", "parity", "fast"])
@pytest.mark.parametrize("kind", ["FLOAT", "BFLOAT16"])
def test_padded_attention(kind, numerics, tmp_path):
    """Blocks of keys that a row does not see at all, whose scores are the lowest there are."""
    b = blocks.Block()
    number = getattr(blocks.TensorProto, kind)
    path = b.save(tmp_path / "padded.onnx", [2, 300, 16], blocks.padded_attention(b, "x", 300, 16, number), result_kind=number)
    done = subprocess.run([TENON, "check", str(path), "--option", f"numerics={numerics}"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "agrees" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("numerics", ["strict", "parity", "fast"])
@pytest.mark.parametrize("rows", [1, 4, "s"])
@pytest.mark.parametrize("form", [{}, {"zero": True}, {"block": 32}, {"block": 32, "zero": True, "turned": True}, {"turned": True}], ids=lambda form: " ".join(form) or "plain")
@pytest.mark.parametrize("outputs", [200, 256])
def test_dequantised_weights(outputs, form, rows, numerics, tmp_path):
    b = blocks.Block()
    y = b.op("Relu", blocks.dequantised_linear(b, "x", 1024, outputs, **form))
    path = b.save(tmp_path / "linear.onnx", [rows, 1024], y, [rows, outputs])
    for size in [1, 6, 7, 40] if rows == "s" else [rows]:
        options = [f"--size=s={size}"] if rows == "s" else []
        done = subprocess.run([TENON, "check", str(path), "--option", f"numerics={numerics}", *options], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and "agrees" in done.stdout, done.stdout + done.stderr
