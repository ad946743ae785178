#!/usr/bin/env python3
"""Fills a corpus folder for fuzz_onnx with small models: seeds.py CORPUS [FOLDER...]

FOLDER holds models below it (an unpacked ONNX backend suite); without one, those of the installed onnx package are taken."""
import pathlib
import sys

MAX_BYTES = 6000


def folders(arguments):
    if arguments:
        return [pathlib.Path(a) for a in arguments]
    import onnx
    return [pathlib.Path(onnx.__file__).parent / "backend/test/data"]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    corpus = pathlib.Path(sys.argv[1])
    corpus.mkdir(parents=True, exist_ok=True)
    count = 0
    for folder in folders(sys.argv[2:]):
        for model in sorted(folder.rglob("*.onnx")):
            if model.stat().st_size <= MAX_BYTES:
                (corpus / f"{model.parent.name}_{model.name}").write_bytes(model.read_bytes())
                count += 1
    print(f"{count} models")


if __name__ == "__main__":
    main()
