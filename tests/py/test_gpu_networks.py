"""The bench's networks, of few layers but whole otherwise, become a GPU's code where there is no GPU: no kernel is refused, and where ptxas is it warns of nothing."""
import copy
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess

import pytest

TENON = os.environ.get("TENON", "build/release/tenon")
spec = importlib.util.spec_from_file_location("gpu_models", pathlib.Path(__file__).resolve().parents[2] / "bench" / "gpu" / "models.py")
models = importlib.util.module_from_spec(spec)  # bench/models.py is another
spec.loader.exec_module(models)


@pytest.mark.parametrize("network", models.NETWORKS, ids=lambda n: n.name)
def test_a_network_is_lowered_for_hopper(network, tmp_path):
    few = copy.copy(network)
    few.layers = few.LAYERS = 1
    few.WORDS = 1000  # the vocabulary: no kernel's kind depends on it, but its weights take seconds to draw
    model, code = tmp_path / "model.onnx", tmp_path / "model.ptx"
    model.write_bytes(few.onnx().SerializeToString())
    done = subprocess.run([TENON, "compile", model, "--machine=sm_90a", "--emit=ptx", "-o", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    kernels = re.findall(r"\.entry (\w+)", code.read_text())
    print(f"{network.name}: {len(kernels)} kernels")
    assert any("dot" in k or "convolution" in k for k in kernels)
    if network.name != "resnet50_b1" and network.name != "resnet50_b64":
        assert any("attention" in k for k in kernels)
    if shutil.which("ptxas"):
        done = subprocess.run(["ptxas", "-arch=sm_90a", code, "-o", tmp_path / "model.cubin"], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and "C75" not in done.stdout + done.stderr, (done.stdout + done.stderr)[-2000:]
