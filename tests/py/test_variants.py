"""Code for fixed sizes beside the code for all: which one a run takes, that results agree, wrong lists."""
import json
import os
import subprocess

import numpy as np
import pytest

import blocks
import tenon_api

TENON = os.environ.get("TENON", "build/release/tenon")
CHECKED = os.environ.get("TENON_CHECKED", TENON)


def tenon(*arguments, program=TENON, code=0):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    b = blocks.Block()
    x = b.op("Softmax", blocks.gelu_mlp(b, "x", 48, 96), axis=1)
    return b.save(tmp_path_factory.mktemp("variants") / "mlp.onnx", ["b", "s", 48], blocks.linear(b, x, 48, 48))


def explain(*arguments):
    return json.loads(tenon("explain", *arguments, "--no-run", "--json", "--threads=1").stdout)


LISTS = ["--variant=b=2,s=16", "--variant", "s=16", "--variant=b=1"]


@pytest.mark.parametrize("b,s,chosen", [(2, 16, 0), (3, 16, 1), (1, 16, 1), (1, 7, 2), (2, 7, None)])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_first_that_fits_is_taken(model, b, s, chosen, target):
    r = explain(model, f"--size=b={b}", f"--size=s={s}", f"--target={target}", *LISTS)
    assert [v["sizes"] for v in r["variants"]] == ["b=2,s=16", "s=16", "b=1"]
    assert [i for i, v in enumerate(r["variants"]) if v["chosen"]] == ([] if chosen is None else [chosen])
    fixed = {0: {"b", "s"}, 1: {"s"}, 2: {"b"}, None: set()}[chosen]
    assert {size["name"] for size in r["sizes"]} == {"b", "s"} - fixed
    text = tenon("explain", model, f"--size=b={b}", f"--size=s={s}", "--no-run", "--threads=1", *LISTS).stdout
    assert ("(this one)" in text) == (chosen is not None) and "variants: b=2,s=16" in text


def test_results_are_those_of_all_sizes(model):
    rng = np.random.default_rng(0)
    plain = tenon_api.Model(model, threads=2)
    variants = tenon_api.Model(model, threads=2, session_options={"variants": "b=2,s=16;s=16;b=1"})
    for shape in ((2, 16), (3, 16), (1, 7), (2, 7), (2, 16), (0, 16), (1, 0)):
        x = rng.standard_normal((*shape, 48)).astype(np.float32)
        np.testing.assert_allclose(variants(x)[0], plain(x)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(tenon_api.Error, match="input 0"):
        variants(np.ones((2, 16, 47), np.float32))
    with pytest.raises(tenon_api.Error, match="f64"):
        variants(np.ones((2, 16, 48)))


def test_weights_are_packed_once(model):
    bench = [json.loads(tenon("bench", model, "--size=b=2", "--size=s=16", "--seconds=0.01", "--json", "--threads=1", *v).stdout) for v in ([], ["--variant=b=2"])]
    assert bench[1]["peak_bytes"] <= bench[0]["peak_bytes"]


def test_a_limit_holds_for_each(model):
    peak = json.loads(tenon("info", model, "--size=b=2", "--size=s=16", "--json", "--threads=1").stdout)["memory"]["peak_bytes"]
    network = tenon_api.Model(model, session_options={"variants": "b=2", "memory-limit": str(2 * peak)})
    for b in (2, 1, 2):
        assert network(np.ones((b, 16, 48), np.float32))[0].shape == (b, 16, 48)
    for b in (2, 3):
        with pytest.raises(tenon_api.Error, match="memory limit"):
            network(np.ones((b, 1600, 48), np.float32))


@pytest.mark.parametrize("text", ["b", "b=", "b=x", "b=-1", "b=1x", "=1", "z=1", "b=1,b=2", "b=1,", "b=99999999999999999999"])
def test_wrong_lists(model, text):
    done = subprocess.run([CHECKED, "run", str(model), f"--variant={text}"], capture_output=True, text=True, timeout=120)
    assert done.returncode in (1, 2) and "error" in done.stderr


def test_an_error_of_a_variant_names_it(model):
    done = subprocess.run([CHECKED, "run", str(model), "--variant=b=3", "--variant=b=1,b=2"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "must be equal" in done.stderr and "while compiling the variant 'b=1,b=2'" in done.stderr
