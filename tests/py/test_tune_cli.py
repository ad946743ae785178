"""Tuning as a user meets it: `--tune`, what later runs make of it, `--tune=off`, files that pin."""
import os
import re
import sqlite3

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from test_cli import AT_FAULT, TENON, USAGE, make_model, tenon

LINE = re.compile(r"^(dot-[0-9a-f]{16}) (M=\d+ N=\d+) # (k\d+_dot), (the selector's|measured|pinned) of \d+", re.MULTILINE)


def mlp(batch):
    rng = np.random.default_rng(1)
    constants = {"w": rng.standard_normal((96, 200)).astype(np.float32), "v": rng.standard_normal((200, 40)).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="first"), helper.make_node("Relu", ["h"], ["r"], name="activation"),
             helper.make_node("MatMul", ["r", "v"], ["y"], name="second")]
    f32 = TensorProto.FLOAT
    return make_model(nodes, {"x": (f32, [batch, 96])}, {"y": (f32, [batch, 40])}, constants)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, batch in (("mlp", 128), ("symbolic", "batch")):
        onnx.save(mlp(batch), folder / f"{name}.onnx")
    return folder


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TENON_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def schedule(model, *options, **more):
    done = tenon("compile", model, "--emit=schedule", "--threads=1", *options, **more)
    return LINE.findall(done.stdout), done


def records(cache):
    with sqlite3.connect(cache / "tuning.db") as db:
        return db.execute("SELECT machine, vocabulary, kernel, schedule, times, date FROM records").fetchall()


def test_tune_measures_and_later_runs_use_it(models, cache):
    model = models / "mlp.onnx"
    plain, _ = schedule(model)
    assert [origin for *_, origin in plain] == ["the selector's"] * 2 and not cache.exists()
    bench = tenon("bench", model, "--tune=20", "--threads=1", "--seconds=0.05")
    assert "median" in bench.stdout and bench.stderr.count(" us with M=") == 2
    rows = records(cache)
    assert len(rows) == 2 and (cache / "tuning.db").stat().st_mode & 0o022 == 0
    for machine, vocabulary, kernel, taken, times, date in rows:
        assert "1 threads" in machine and vocabulary >= 1 and "dim 128" in kernel and taken in times and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", date)
    later, done = schedule(model)
    assert [origin for *_, origin in later] == ["measured"] * 2 and done.stderr == ""
    assert sorted(values for _, values, *_ in later) == sorted(taken for _, _, _, taken, _, _ in rows)
    again = tenon("run", model, "--tune", "--threads=1")  # nothing is left to measure
    assert again.stderr == "" and records(cache) == rows
    assert schedule(model, "--tune=off")[0] == plain
    assert tenon("compile", model, "--emit=tile", "--threads=1").stdout == tenon("compile", model, "--emit=tile", "--threads=1").stdout
    assert [origin for *_, origin in schedule(model, "--threads=2")[0]] == ["the selector's"] * 2  # threads have records of their own


def test_a_budget_is_kept_and_work_goes_on(models, cache):
    model = models / "mlp.onnx"
    first = tenon("compile", model, "--emit=schedule", "--threads=1", "--tune=0.000001")
    assert "another run goes on with them" in first.stderr and len(records(cache)) == 1
    assert schedule(model, "--tune=20")[1].stderr.count(" us with M=") == 1 and len(records(cache)) == 2


def test_the_tuned_network_is_right(models):
    assert "agrees" in tenon("check", models / "mlp.onnx", "--tune=5").stdout


def test_symbolic_sizes_are_measured_where_they_are_given(models, cache):
    model = models / "symbolic.onnx"
    _, done = schedule(model, "--tune=5")
    assert done.stderr.count("give one with --size batch=N") == 2 and not records(cache)
    lines, done = schedule(model, "--tune=20", "--size", "batch=48")
    assert done.stderr.count(" at batch=48: ") == 2 and all("at batch=48" in row[4] for row in records(cache))
    assert [origin for *_, origin in schedule(model)[0]] == ["measured"] * 2


def test_a_file_pins(models, tmp_path):
    model, pins = models / "mlp.onnx", tmp_path / "pins"
    (name, values, kernel, _), second = schedule(model)[0]
    rows = int(re.search(r"M=(\d+)", values)[1])
    pins.write_text(f"# by hand\n{name} M={rows // 2}\n{second[2]} {second[1]}\n")
    lines, done = schedule(model, "--schedule", pins)
    assert [origin for *_, origin in lines] == ["pinned"] * 2 and f"M={rows // 2} " in lines[0][1] and done.stderr == ""
    pins.write_text(done.stdout)  # what is printed can be read
    assert [line[:2] for line in schedule(model, "--schedule", pins)[0]] == [line[:2] for line in lines]
    assert "agrees" in tenon("check", model, "--schedule", pins).stdout
    for text, words in ((f"\n{name} M=5", f"{pins}:2: error: {name}: M=5: expected one of"), (f"{name} depth=1", "there is no field 'depth'; there are M, N"),
                        (f"{name} M", "expected FIELD=NUMBER")):
        pins.write_text(text)
        assert words in schedule(model, "--schedule", pins, code=AT_FAULT)[1].stderr
    pins.write_text("dot-0000000000000000 M=4\n")
    assert "warning: 'dot-0000000000000000': no kernel of this network" in schedule(model, "--schedule", pins)[1].stderr
    tenon("compile", model, "--emit=schedule", "--schedule", tmp_path / "none", code=AT_FAULT)


@pytest.mark.parametrize("damage", ["noise", "folder"])
def test_a_useless_database_is_a_warning(models, cache, damage):
    cache.mkdir(mode=0o700)
    if damage == "noise":
        (cache / "tuning.db").write_bytes(os.urandom(4096))
    else:
        (cache / "tuning.db").mkdir()
    done = tenon("run", models / "mlp.onnx")
    assert done.stderr.count("warning: tuning records") == 1 and "going on without them" in done.stderr
    assert tenon("run", models / "mlp.onnx", "--tune=off").stderr == ""
    assert "warning: tuning records" in tenon("compile", models / "mlp.onnx", "--emit=schedule", "--tune=0.1").stderr


def test_machines_that_are_not_here(models, cache):
    _, done = schedule(models / "mlp.onnx", "--tune=1", "--machine=sm_90a:7")
    assert "warning: nothing is tuned" in done.stderr and "k0_dot" in done.stdout and not cache.exists()


def test_wrong_usage(models):
    for value in ("fast", "-1", "1x", ""):
        assert "expected seconds or off" in tenon("run", models / "mlp.onnx", f"--tune={value}", code=USAGE).stderr
