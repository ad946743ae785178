"""StableHLO's interpreter tests: what passing.txt lists must pass. Skipped where the conformance archive is not beside the checkout."""
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ARCHIVE = HERE.parents[2] / "shared/conformance/stablehlo.tar.zst"


def test_interpreter_conformance():
    if not ARCHIVE.exists():
        pytest.skip(f"no {ARCHIVE.name}")
    build = pathlib.Path(os.environ["TENON_CHECKED"]).parent
    command = [sys.executable, HERE / "run.py", "--tool", build / "tools/eval_graph", "--tests", build / "conformance", "--archive", ARCHIVE]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
