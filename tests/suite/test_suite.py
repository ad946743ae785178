"""The ONNX backend suite as compiled code: every case that passing.txt lists passes, and none of the rest crashes."""
import os
import pathlib

import pytest

import suite

CHUNKS = [(kind, i, 8 if kind == "node" else 1) for kind in suite.KINDS for i in range(8 if kind == "node" else 1)]
ANSWERED = ("PASS", "FAIL", "UNSUPPORTED")


@pytest.fixture(scope="session")
def build():
    return pathlib.Path(os.environ["TENON"]).resolve().parent


@pytest.fixture(scope="session")
def data(build, tmp_path_factory):
    lock = build / "conformance.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    import fcntl
    with open(lock, "w") as file:  # several pytest workers: one unpacks
        fcntl.flock(file, fcntl.LOCK_EX)
        folder = suite.data_folder(build)
    if folder is None:
        pytest.skip("neither the suite's archive nor the package onnx is here")
    return folder


@pytest.mark.parametrize("kind,part,parts", CHUNKS, ids=[f"{k}-{i}" for k, i, _ in CHUNKS])
def test_compiled(kind, part, parts, build, data, record_property):
    paths = dict(list(suite.cases(data, kind).items())[part::parts])
    results = suite.run(build / "tools/suite_run", paths.values())
    known = suite.listed()
    lost = [f"{word} {name}: {why}" for name, (word, why) in results.items() if word != "PASS" and f"{kind}/{name}" in known]
    silent = [f"{name}: no answer" for name in paths if name not in results]
    crashed = [f"{word} {name}" for name, (word, _) in results.items() if word not in ANSWERED]
    new = [f"{kind}/{name}" for name, (word, _) in results.items() if word == "PASS" and f"{kind}/{name}" not in known]
    record_property("passing", sum(word == "PASS" for word, _ in results.values()))
    if new:
        print(f"{len(new)} cases pass and are not listed: python tests/suite/suite.py --tool {build}/tools/suite_run --update\n  " + "\n  ".join(new))
    assert not lost + silent + crashed


def test_the_list_has_no_strangers(data):
    names = {f"{kind}/{name}" for kind in suite.KINDS for name in suite.cases(data, kind)}
    assert not suite.listed() - names
