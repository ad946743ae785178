"""The `tenon` program as a user meets it: what it prints, what it saves, its exit codes; damaged files on the checked build."""
import json
import os
import pathlib
import random
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

TENON = os.environ.get("TENON", "build/release/tenon")
CHECKED = os.environ.get("TENON_CHECKED", TENON)
RIGHT, AT_FAULT, USAGE, DIFFERS = range(4)


def tenon(*arguments, program=TENON, code=RIGHT):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done


def make_model(nodes, inputs, outputs, constants=(), **options):
    """inputs, outputs: {name: (element type, shape)}; constants: {name: array}"""
    values = [[helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in group.items()] for group in (inputs, outputs)]
    graph = helper.make_graph(nodes, "graph", *values, [numpy_helper.from_array(a, n) for n, a in dict(constants).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, **options)


def layer():
    """y = relu(x @ w + b), batch symbolic."""
    rng = np.random.default_rng(1)
    constants = {"w": rng.standard_normal((12, 7)).astype(np.float32), "b": rng.standard_normal(7).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["product"], name="product"), helper.make_node("Add", ["product", "b"], ["sum"], name="bias"),
             helper.make_node("Relu", ["sum"], ["y"], name="activation")]
    f32 = TensorProto.FLOAT
    return make_model(nodes, {"x": (f32, ["batch", 12])}, {"y": (f32, ["batch", 7])}, constants), constants


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "layer.onnx"
    proto, constants = layer()
    onnx.save(proto, path)
    return path, constants


def test_run_saves_what_numpy_computes(model, tmp_path):
    path, constants = model
    x = np.random.default_rng(2).standard_normal((5, 12)).astype(np.float32)
    expected = np.maximum(x @ constants["w"] + constants["b"], 0)
    np.save(tmp_path / "x.npy", x)
    done = tenon("run", path, "--input", f"x={tmp_path / 'x.npy'}", "--save", tmp_path / "out")
    assert "f32[5, 7]" in done.stdout
    np.testing.assert_allclose(np.load(tmp_path / "out/output_0.npy"), expected, rtol=1e-5, atol=1e-6)


def test_run_on_a_folder_of_tensor_protos(model, tmp_path):
    path, constants = model
    x = np.random.default_rng(3).standard_normal((3, 12)).astype(np.float32)
    (tmp_path / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    tenon("run", path, "--inputs", tmp_path, "--save", tmp_path / "out", "--format", "pb")
    saved = TensorProto.FromString((tmp_path / "out/output_0.pb").read_bytes())
    np.testing.assert_allclose(numpy_helper.to_array(saved), np.maximum(x @ constants["w"] + constants["b"], 0), rtol=1e-5, atol=1e-6)


def test_random_inputs_follow_the_seed(model):
    path, _ = model
    runs = [tenon("run", path, "--seed", seed, "--size", "batch=4").stdout for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert "f32[9, 7]" in tenon("run", path, "--dim", "batch=9").stdout


def test_check_agrees(model):
    path, _ = model
    assert "agrees" in tenon("check", path, "--size", "batch=3").stdout


@pytest.mark.parametrize("stage,part", [("graph", "dot_general"), ("tile", "kernel @"), ("loop", "kernel @"), ("llvm", "define"), ("asm", ".text")])
@pytest.mark.parametrize("machine", ["avx512", "avx2", "baseline"])
def test_compile_prints_every_stage(model, stage, part, machine):
    path, _ = model
    assert part in tenon("compile", path, "--emit", stage, "--machine", machine).stdout


def test_compile_writes_an_object(model, tmp_path):
    path, _ = model
    tenon("compile", path, "--emit", "obj", "-o", tmp_path / "layer.o")
    assert (tmp_path / "layer.o").read_bytes()[:4] == b"\x7fELF"


def test_graph_text_reads_back(model, tmp_path):
    path, _ = model
    text = tenon("compile", path, "--emit", "graph", "--passes", "none", "-o", tmp_path / "layer.tn")
    assert text.stdout == ""
    if "..." not in (tmp_path / "layer.tn").read_text():  # large constants are left out of the text
        assert "agrees" in tenon("check", tmp_path / "layer.tn").stdout


def test_bench_speaks_json(model):
    path, _ = model
    report = json.loads(tenon("bench", path, "--seconds", "0.05", "--json", "--profile").stdout)
    assert {"median_ms", "min_ms", "compile_ms", "peak_bytes", "kernels"} <= report.keys()
    assert 0 < report["min_ms"] <= report["median_ms"] and report["peak_bytes"] > 0 and report["kernels"]


def test_info(model):
    path, _ = model
    text = tenon("info", path).stdout
    for word in ("x", "f32[batch, 12]", "f32[batch, 7]", "MatMul", "Relu", "unsupported: none"):
        assert word in text
    assert "baseline" in tenon("info").stdout


def test_wrong_usage(model):
    path, _ = model
    for arguments in ((), ("fly",), ("run",), ("run", path, "--wings"), ("run", path, "--seed", "x"), ("bench", path, "--seconds", "-1"), ("run", path, "--machine", "abacus"),
                      ("run", path, "--size", "batch=few"), ("run", path, "--size", "batch=-1")):
        assert tenon(*arguments, code=USAGE).stderr
    assert "Usage" in tenon("--help").stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [("run",), ("compile", "--emit=tile"), ("info",)])
def test_output_that_cannot_be_written_is_a_failure(model, arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run([TENON, arguments[0], model[0], *arguments[1:]], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == AT_FAULT and "standard output" in done.stderr


@pytest.mark.parametrize("arguments,part", [(("--input", "z=x.npy"), "z"), (("--input", "x=missing.npy"), "missing.npy"), (("--dim", "wings=2"), "wings")])
def test_inputs_at_fault_are_named(model, arguments, part):
    path, _ = model
    done = subprocess.run([TENON, "run", path, *arguments], capture_output=True, text=True)
    assert done.returncode in (AT_FAULT, USAGE) and part in done.stderr


def test_every_operator_without_lowering_is_named(tmp_path):
    s = TensorProto.STRING
    nodes = [helper.make_node("StringNormalizer", ["x"], ["y"], name="first"), helper.make_node("Wings", ["y"], ["z"], name="second", domain="birds")]
    proto = make_model(nodes, {"x": (s, ["n"])}, {"z": (s, ["n"])})
    proto.opset_import.append(helper.make_opsetid("birds", 1))
    onnx.save(proto, tmp_path / "strings.onnx")
    text = tenon("run", tmp_path / "strings.onnx", code=AT_FAULT).stderr
    assert "Wings" in text and "second" in text


# ---- damaged files, on the build that checks every access ----------------------------------------------------------------------------


def survives(data, tmp_path):
    """Whatever the file says, the program ends with one of its own exit codes; 1 comes with a message."""
    path = tmp_path / "damaged.onnx"
    path.write_bytes(data)
    done = subprocess.run([CHECKED, "run", path, "--threads", "1"], capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode in (RIGHT, AT_FAULT), f"exit {done.returncode}: {done.stderr[-3000:]}"
    assert done.returncode == RIGHT or "error" in done.stderr
    return done.returncode


def test_truncated_files(model, tmp_path):
    data = pathlib.Path(model[0]).read_bytes()
    codes = {survives(data[:len(data) * i // 40], tmp_path) for i in range(40)}
    assert AT_FAULT in codes


def test_flipped_bits(model, tmp_path):
    rng, original = random.Random(4), pathlib.Path(model[0]).read_bytes()
    for _ in range(40):
        data = bytearray(original)
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        survives(bytes(data), tmp_path)


def test_cycles(tmp_path):
    f32 = TensorProto.FLOAT
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], name="one"), helper.make_node("Relu", ["a"], ["b"], name="two")]
    data = make_model(nodes, {"x": (f32, [4])}, {"b": (f32, [4])}).SerializeToString()
    assert survives(data, tmp_path) == AT_FAULT


def test_functions_that_call_themselves(tmp_path):
    f32 = TensorProto.FLOAT
    proto = make_model([helper.make_node("Loop1", ["x"], ["y"], domain="own")], {"x": (f32, [4])}, {"y": (f32, [4])})
    proto.opset_import.append(helper.make_opsetid("own", 1))
    proto.functions.append(helper.make_function("own", "Loop1", ["x"], ["y"], [helper.make_node("Loop1", ["x"], ["y"], domain="own")],
                                                [helper.make_opsetid("own", 1), helper.make_opsetid("", 17)]))
    assert survives(proto.SerializeToString(), tmp_path) == AT_FAULT


@pytest.mark.parametrize("shape", [[1 << 40], [1 << 62, 4], [-3], [0, 1 << 50]])
def test_absurd_sizes(shape, tmp_path):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape)
    f32 = TensorProto.FLOAT
    proto = make_model([helper.make_node("Neg", ["w"], ["y"])], {}, {"y": (f32, None)})
    proto.graph.initializer.append(tensor)
    survives(proto.SerializeToString(), tmp_path)


def test_external_data_stays_in_the_folder(tmp_path):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(16))
    folder = tmp_path / "model"
    folder.mkdir()
    for place in ("../secret.bin", str(secret), "sub/../../secret.bin"):
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=place)
        proto = make_model([helper.make_node("Neg", ["w"], ["y"])], {}, {"y": (TensorProto.FLOAT, [4])})
        proto.graph.initializer.append(tensor)
        assert survives(proto.SerializeToString(), folder) == AT_FAULT


def test_what_is_no_file_of_its_own_is_no_external_data(tmp_path):
    (tmp_path / "good.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    (tmp_path / "sub").mkdir()
    os.link(tmp_path / "good.bin", tmp_path / "hard.bin")
    os.unlink(tmp_path / "hard.bin")
    (tmp_path / "soft.bin").symlink_to(tmp_path / "good.bin")
    (tmp_path / "away").symlink_to(tmp_path)
    (tmp_path / "twice.bin").write_bytes(bytes(24))
    os.link(tmp_path / "twice.bin", tmp_path / "again.bin")
    os.mkfifo(tmp_path / "pipe.bin")
    expected = {"good.bin": RIGHT, "./good.bin": RIGHT, "sub/../good.bin": AT_FAULT, "soft.bin": AT_FAULT, "away/good.bin": AT_FAULT, "twice.bin": AT_FAULT, "pipe.bin": AT_FAULT,
                "sub": AT_FAULT, "": AT_FAULT, "none.bin": AT_FAULT, "a\0b": AT_FAULT}
    cases = [(place, {}, code) for place, code in expected.items()]
    cases += [("good.bin", {"offset": "8", "length": "16"}, RIGHT), ("good.bin", {"offset": "12"}, AT_FAULT), ("good.bin", {"length": "8"}, AT_FAULT),
              ("good.bin", {"offset": "-4"}, AT_FAULT), ("good.bin", {"offset": str(1 << 64)}, AT_FAULT), ("good.bin", {"offset": "x"}, AT_FAULT)]
    for place, more, code in cases:
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        for key, value in {"location": place, **more}.items():
            tensor.external_data.add(key=key, value=value)
        proto = make_model([helper.make_node("Neg", ["w"], ["y"])], {}, {"y": (TensorProto.FLOAT, [4])})
        proto.graph.initializer.append(tensor)
        assert survives(proto.SerializeToString(), tmp_path) == code, (place, more)


def test_check_names_the_first_node_that_differs(tmp_path):
    """Sums of f32 in f32 lose a 1 beside 1e8; the reference's, in double, do not."""
    f32 = TensorProto.FLOAT
    nodes = [helper.make_node("Neg", ["x"], ["n"], name="exact"), helper.make_node("ReduceSum", ["n"], ["t"], name="lossy", keepdims=0),
             helper.make_node("Mul", ["t", "t"], ["y"], name="after")]
    onnx.save(make_model(nodes, {"x": (f32, [3])}, {"y": (f32, [])}), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.array([-1e8, 1e8, -1], np.float32))
    for machine in ("baseline", "avx2"):
        done = tenon("check", tmp_path / "m.onnx", "--input", f"x={tmp_path / 'x.npy'}", "--machine", machine, code=DIFFERS)
        assert "node 'lossy'" in done.stderr and "expected 1, found 0" in done.stderr and "after" not in done.stderr
    np.save(tmp_path / "x.npy", np.array([1, 2, 3], np.float32))
    tenon("check", tmp_path / "m.onnx", "--input", f"x={tmp_path / 'x.npy'}")


def test_progress_is_for_terminals(model):
    pty = pytest.importorskip("pty")
    path, _ = model
    ours, theirs = pty.openpty()
    done = subprocess.run([TENON, "run", str(path)], stdout=subprocess.PIPE, stderr=theirs, timeout=60)
    os.close(theirs)
    shown = b""
    try:
        while block := os.read(ours, 1 << 16):
            shown += block
    except OSError:  # what a terminal says at its end
        pass
    os.close(ours)
    assert done.returncode == 0 and b"import 0 of" in shown and shown.endswith(b"\r\x1b[K")  # and nothing stays
    assert tenon("run", path).stderr == ""


def test_machines_that_this_is_not_are_refused(model):
    path, _ = model
    for machine in ("neon", "sm_90a"):
        done = tenon("run", path, "--machine", machine, code=AT_FAULT)
        assert f"machine '{machine}' can't run here: " in done.stderr


def test_operator_sets(tmp_path):
    f32 = TensorProto.FLOAT
    for version, code in [(7, RIGHT), (28, RIGHT), (29, AT_FAULT), (1 << 40, AT_FAULT), (0, AT_FAULT), (-1, AT_FAULT)]:
        proto = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (f32, [3])}, {"y": (f32, [3])})
        proto.opset_import[0].version = version
        (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
        assert "version" in tenon("run", tmp_path / "m.onnx", code=code).stderr or code == RIGHT


def test_strings_are_refused_by_name(tmp_path):
    nodes = [helper.make_node("Identity", ["words"], ["y"])]
    onnx.save(make_model(nodes, {"words": (TensorProto.STRING, [3])}, {"y": (TensorProto.STRING, [3])}), tmp_path / "m.onnx")
    assert "'words': element type string" in tenon("run", tmp_path / "m.onnx", code=AT_FAULT).stderr
