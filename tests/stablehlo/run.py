"""Runs StableHLO's own interpreter tests on Tenon's reference interpreter.

    run.py --tool build/debug/tools/eval_graph --tests FOLDER [--archive stablehlo.tar.zst] [--update] [-j N] [WORD ...]

FOLDER/stablehlo holds the tests (--archive unpacks them there first if it is missing). passing.txt beside this file lists
what passes; a listed test that no longer does is a failure (exit 1), and --update adds tests, never removes any. A WORD
keeps the tests whose name contains it and shows why they fail.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import convert

HERE = pathlib.Path(__file__).parent


def read_results(data):
    """Arrays of eval_graph's output."""
    arrays, at = [], 0
    while at < len(data):
        end = data.index(b"\n", at)
        name, *dims = data[at:end].decode().split()
        dims, kind, at = [int(d) for d in dims], np.dtype(convert.NUMPY[name]), end + 1
        count = int(np.prod(dims, dtype=np.int64))
        if name in ("i4", "u4"):
            packed = np.frombuffer(data, np.uint8, (count + 1) // 2, at)
            nibbles = np.stack([packed & 15, packed >> 4], 1).reshape(-1)[:count].astype(np.int8)
            arrays.append((np.where(nibbles > 7, nibbles - 16, nibbles) if name == "i4" else nibbles).reshape(dims))
            at += packed.size
        else:
            arrays.append(np.frombuffer(data, kind, count, at).reshape(dims))
            at += count * kind.itemsize
    return arrays


def parts(array):
    """Complex numbers as pairs of reals; small floats as they are."""
    return np.stack([array.real, array.imag], -1) if np.iscomplexobj(array) else array


def is_float(array):
    return array.dtype.kind == "f" or (array.dtype.kind == "V" or array.dtype.name.startswith(("bfloat", "float8")))


def ulps(a, b):
    """How many numbers of the type lie between a and b, elementwise; NaN beside NaN is 0, beside a number the most."""
    size = a.dtype.itemsize
    signed = np.dtype(f"i{size}")
    low = np.iinfo(signed).min
    x, y = ([int(v) if v >= 0 else low - int(v) for v in p.view(signed).reshape(-1)] for p in (a, b))
    nan_a, nan_b = np.isnan(a.astype(np.float64)).reshape(-1), np.isnan(b.astype(np.float64)).reshape(-1)
    return [0 if n and m else 2 ** 64 - 1 if n or m else abs(i - j) for i, j, n, m in zip(x, y, nan_a, nan_b)]


SUMS = ("dot_general", "convolution", "reduce", "fft", "triangular_solve", "select_and_scatter")


def near(found, expected, max_ulp):
    """Within max_ulp of the largest value: where terms cancel, sums in double and sums in the type itself lie further apart."""
    a, b = found.astype(np.float64), expected.astype(np.float64)
    largest = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
    digits = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}.get(found.dtype.name, 3)
    with np.errstate(invalid="ignore"):
        return bool(np.all((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= max_ulp * largest * 2.0 ** (1 - digits))))


def compare(check, found, expected, sums):
    """What is wrong, or an empty text."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"found {found.dtype}{found.shape}, expected {expected.dtype}{expected.shape}"
    found, expected = np.ascontiguousarray(parts(found)), np.ascontiguousarray(parts(expected))
    if check.kind == "close" and is_float(found):
        distance = ulps(found, expected)
        good = all(check.min_ulp <= d <= check.max_ulp for d in distance) or (sums and near(found, expected, check.max_ulp))
        return "" if good else f"{max(distance)} ulp apart, at most {check.max_ulp}"
    a, b = found.astype(object if found.dtype.kind in "iu" else np.float64), expected.astype(object if found.dtype.kind in "iu" else np.float64)
    same = (a == b) | ((a != a) & (b != b))
    if check.kind == "almost_eq" and is_float(found):
        relative = {2: 2.0 ** -6 if found.dtype.name == "bfloat16" else 2.0 ** -9, 1: 0.25}.get(found.dtype.itemsize, 1e-5)
        with np.errstate(invalid="ignore"):
            same = same | (np.abs(a - b) <= 1e-4 + relative * np.abs(b))
    wrong = np.argwhere(~np.asarray(same, bool))
    if not len(wrong):
        return ""
    at = tuple(wrong[0])
    return f"{len(wrong)} of {found.size} differ, at {at}: found {found[at]}, expected {expected[at]}"


def run(tool, test):
    """What is wrong with a test, or an empty text."""
    if test.unsupported:
        return "not converted: " + test.unsupported
    with tempfile.NamedTemporaryFile("w", suffix=".tn") as file:
        file.write(test.text)
        file.flush()
        try:
            done = subprocess.run([tool, file.name], capture_output=True, timeout=120)
        except subprocess.TimeoutExpired:
            return "takes more than 120 s"
    if done.returncode:
        return done.stderr.decode(errors="replace").strip().replace(file.name, "test.tn")[-400:] or f"exit {done.returncode}"
    results = read_results(done.stdout)
    sums = any(f"= {word}" in test.text for word in SUMS)
    problems = [compare(c, *results[2 * i:2 * i + 2], sums) for i, c in enumerate(test.checks)]
    return next((p for p in problems if p), "")


def collect(folder, words):
    for path in sorted(folder.rglob("*.mlir")):
        where = path.relative_to(folder)
        if where.parts[:2] == ("tests", "vhlo") or "quantized" in where.parts:
            continue
        for test in convert.convert(path.read_text()):
            name = f"{where}::{test.name}"
            if all(w in name for w in words):
                yield name, test


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tool", required=True)
    options.add_argument("--tests", required=True, type=pathlib.Path)
    options.add_argument("--archive", type=pathlib.Path)
    options.add_argument("--update", action="store_true")
    options.add_argument("-j", type=int, default=2)
    options.add_argument("words", nargs="*")
    args = options.parse_args()
    if args.archive and not (args.tests / "stablehlo").exists():
        args.tests.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "--zstd", "-xf", args.archive, "-C", args.tests], check=True)
    tests = list(collect(args.tests / "stablehlo", args.words))
    with ThreadPoolExecutor(args.j) as pool:
        problems = list(pool.map(lambda item: run(args.tool, item[1]), tests))
    list_file = HERE / "passing.txt"
    listed = set(list_file.read_text().split("\n")) - {""} if list_file.exists() else set()
    passing = {name for (name, _), problem in zip(tests, problems) if not problem}
    lost = [(name, problem) for (name, _), problem in zip(tests, problems) if problem and name in listed]
    for (name, _), problem in zip(tests, problems):
        if problem and (args.words or name in listed):
            print(f"{'LOST' if name in listed else 'fails'} {name}: {problem}")
    missing = listed - {name for name, _ in tests} if not args.words else set()
    for name in sorted(missing):
        print(f"LOST {name}: no such test")
    print(f"{len(passing)} of {len(tests)} pass; {len(passing - listed)} of them not listed yet; {len(lost) + len(missing)} lost")
    if args.update:
        list_file.write_text("".join(f"{name}\n" for name in sorted(listed | passing)))
    return 1 if lost or missing else 0


if __name__ == "__main__":
    sys.exit(main())
