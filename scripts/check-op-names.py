#!/usr/bin/env python3
"""Counts the files of src/ that name each operation of the Graph IR: its row, the builder, the interpreter, the lowering, one
family of rules. More means that a stage keeps a list of names where a trait or a column of ops.def should have told it.
Importers don't count, nor files that look for one shape of graph: naming operations is all they do. `--list` prints every operation with its files."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "src/graph/ops.def"
LIMIT = 6
# Operations that more files name, how many at most, and why. A number here may only shrink.
MORE = {
    "constant": (12, "a leaf with data: every stage asks what is known"),
    "iota": (8, "a leaf known in closed form"),
    "dimension": (7, "a leaf: the rules on sizes read it"),
    "define_dimension": (7, "gives birth to a symbol: graph order and sizes depend on it"),
    "convert": (11, "fusion moves it across memory, products absorb it, parts of sums look through it"),
    "compare": (7, "its direction is an attribute"),
    "broadcast_in_dim": (12, "what views, rules and layouts are made of"),
    "reshape": (10, "the same"),
    "transpose": (8, "the same"),
    "pad": (9, "the same, with elements from elsewhere"),
    "concatenate": (9, "the same, with several operands"),
    "convolution": (7, "a product with windows of its own"),
    "return": (7, "ends a region: its operands are the results"),
}

# Files that know one shape of graph, what they are for.
SHAPES = {
    "fuse/attention.c": "finds attention",
    "fuse/attend.c": "makes its kernel",
    "fuse/visible.c": "what its masks leave",
    "fuse/merge.c": "products that share an operand",
    "fuse/skinny.c": "products in parts",
    "opt/products.c": "products on narrow factors",
    "opt/assign.c": "what operations over images cost in each layout",
}


def operations():
    return re.findall(r"^(?:UNARY|BINARY|OP)\((\w+)", TABLE.read_text(), re.MULTILINE)


def files():
    """{path: names of operations in it}"""
    name = re.compile(r"\bTN_OP_(\w+)|\b(?:EVAL|ELEMENTWISE)\((\w+)\)")
    paths = [p for p in sorted((ROOT / "src").rglob("*.[ch]")) if p.relative_to(ROOT).parts[1] != "import"]
    return {p: {a or b for a, b in name.findall(p.read_text())} for p in paths}


def main():
    named, breaches, checked = files(), 0, operations()
    if len(checked) < 50:
        print(f"{TABLE.relative_to(ROOT)}: only {len(checked)} operations found: is it read rightly?")
        return 1
    for operation in checked:
        found = [TABLE] + [path for path, names in named.items() if operation in names and str(path.relative_to(ROOT / "src")) not in SHAPES]
        limit, why = MORE.get(operation, (LIMIT, ""))
        text = ", ".join(str(path.relative_to(ROOT / "src")) for path in found)
        if "--list" in sys.argv[1:]:
            print(f"{operation}: {len(found)} of {limit}: {text}")
        if len(found) > limit:
            print(f"{operation} is named by {len(found)} files, {limit} are allowed{f' ({why})' if why else ''}: {text}")
            breaches += 1
    for stranger in sorted(MORE.keys() - set(checked)):
        print(f"{pathlib.Path(__file__).name}: '{stranger}' is no operation")
        breaches += 1
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
