"""How compile time grows with a network's nodes, in instructions that the machine carried out: those are the same every time, seconds are not."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import onnx
import pytest

TENON = os.environ.get("TENON", "build/release/tenon")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import linear  # noqa: E402

FEW, MANY = 2500, 10000


def instructions(model):
    """Of `tenon info`: import, passes, fusion, lowering, memory plan. Valgrind's tool counts them; without its caches it does nothing else."""
    done = subprocess.run(["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", TENON, "info", model, "--threads=1"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(re.search(r"I\s+refs:\s+([\d,]+)", done.stderr).group(1).replace(",", ""))


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind counts the instructions")
@pytest.mark.parametrize("graph", linear.GRAPHS)
def test_four_times_the_nodes_take_four_times_the_work(graph, tmp_path):
    counts = {}
    for nodes in (1, FEW, MANY):
        path = tmp_path / f"{nodes}.onnx"
        onnx.save(linear.GRAPHS[graph](max(nodes, 2)), path)
        counts[nodes] = instructions(path)
    first, then = ((counts[n] - counts[1]) / n for n in (FEW, MANY))
    print(f"{graph}: {first:.0f} instructions a node of {FEW}, {then:.0f} of {MANY}")
    assert then <= 1.5 * first  # sorting takes a logarithm (1.18), groups end elsewhere; what is quadratic would be four times as much
