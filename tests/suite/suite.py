"""Runs the ONNX backend suite as compiled code and keeps the list of cases that pass.

    suite.py --tool build/release/tools/suite_run [--data FOLDER] [--update] [-j N] [WORD ...]

FOLDER holds node/, simple/, light/ …; without it the archive beside the checkout is unpacked below the build folder, else the Python
package onnx serves. passing.txt beside this file lists what passes, as KIND/NAME; a listed case that no longer does is a failure (exit 1).
--update adds what newly passes and never removes a line. A WORD keeps the cases whose name contains it and shows why they fail.
"""
import argparse
import importlib.util
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
LIST = HERE / "passing.txt"
ARCHIVE = HERE.parents[2] / "shared/conformance/onnx-backend-1.22.tar.zst"
KINDS = ("node", "simple", "light", "pytorch-converted", "pytorch-operator")


def data_folder(build):
    """The suite's data: from the archive if there is one, else from the package onnx; None if neither is here."""
    unpacked = build / "conformance/onnx-backend"
    if ARCHIVE.exists():
        if not (unpacked / "complete").exists():
            unpacked.mkdir(parents=True, exist_ok=True)
            subprocess.run(["tar", "--zstd", "-xf", ARCHIVE, "-C", unpacked], check=True)
            (unpacked / "complete").touch()
        return next(path.parent for path in sorted(unpacked.rglob("node")) if path.is_dir())
    found = importlib.util.find_spec("onnx")
    folder = pathlib.Path(found.origin).parent / "backend/test/data" if found else None
    return folder if folder and folder.is_dir() else None


def cases(data, kind):
    """{name: path} of a kind; a light model is a file."""
    if kind == "light":
        return {path.stem: path for path in sorted((data / kind).glob("*.onnx"))}
    return {path.name: path for path in sorted((data / kind).iterdir()) if (path / "model.onnx").exists()}


def listed():
    return set(LIST.read_text().split()) if LIST.exists() else set()


def run(tool, paths, jobs=1, seconds=120):
    """{name: (word, why)} for each path; word is PASS, FAIL, UNSUPPORTED, CRASH or TIMEOUT."""
    if not paths:
        return {}
    done = subprocess.run([tool, "-j", str(jobs), "-t", str(seconds), *paths], capture_output=True, text=True, errors="replace")
    results = {}
    for line in done.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word in ("PASS", "FAIL", "UNSUPPORTED", "CRASH", "TIMEOUT"):
            name, _, why = rest.partition(": ")
            results[name] = (word, why)
    return results


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tool", required=True, type=pathlib.Path)
    options.add_argument("--data", type=pathlib.Path)
    options.add_argument("--update", action="store_true")
    options.add_argument("-j", type=int, default=2)
    options.add_argument("words", nargs="*")
    args = options.parse_args()
    data = args.data or data_folder(args.tool.resolve().parent.parent)
    if data is None:
        options.error("no data: neither the archive nor the package onnx is here")
    known, passing, failed = listed(), set(), False
    for kind in KINDS:
        paths = {n: p for n, p in cases(data, kind).items() if all(w in f"{kind}/{n}" for w in args.words)}
        results = run(args.tool, paths.values(), args.j)
        good = {f"{kind}/{n}" for n, (word, _) in results.items() if word == "PASS"}
        for name, (word, why) in sorted(results.items()):
            lost = word != "PASS" and f"{kind}/{name}" in known
            failed |= lost
            if word != "PASS" and (lost or args.words or word in ("CRASH", "TIMEOUT")):
                print(f"{'LOST ' if lost else ''}{word} {kind}/{name}: {why}")
        print(f"{kind}: {len(good)} of {len(paths)} pass, {len(good - known)} of them not listed yet")
        passing |= good
    if args.update:
        LIST.write_text("".join(f"{name}\n" for name in sorted(known | passing)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
