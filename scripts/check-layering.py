#!/usr/bin/env python3
"""Checks who includes whom: a folder of src/ includes only folders that stand earlier in LEVELS (docs/building.md), and
of another folder only what is public there: the header named after it, or a table (.def). Prints each breach."""
import pathlib
import re
import sys

LEVELS = "base graph eval import opt tile fuse triton loop target plan run tune api".split()
ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def breach(folder, path):
    """Why a file of `folder` (None: outside src/) may not include `path`, or None if it may."""
    parts = path.split("/")
    if parts[0] == "tenon" or len(parts) == 1 and folder != "examples":
        return None
    if folder == "examples":
        return "an example sees the public API only"
    if parts[0] not in LEVELS:
        return f"'{parts[0]}' is no folder of src/"
    if folder is None or parts[0] == folder:
        return None
    if LEVELS.index(parts[0]) > LEVELS.index(folder):
        return f"{parts[0]} is above {folder}"
    name = pathlib.PurePath(parts[-1])
    if name.suffix != ".def" and name.stem != parts[-2]:
        return f"{path} is private to {parts[0]}"
    return None


def files():
    for top in ("src", "cli", "bench", "examples"):
        for path in sorted((ROOT / top).rglob("*.[ch]")):
            parts = path.relative_to(ROOT).parts
            yield path, parts[1] if top == "src" else "examples" if top == "examples" else None


def main():
    breaches = 0
    for path, folder in files():
        text = path.read_text()
        for match in INCLUDE.finditer(text):
            why = breach(folder, match[1])
            if why:
                line = text.count("\n", 0, match.start(1)) + 1
                print(f"{path.relative_to(ROOT)}:{line}: includes {match[1]}: {why}")
                breaches += 1
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
