#!/usr/bin/env python3
"""How compile time and memory grow with a network's nodes, without code generation.

    bench/linear.py                         chain, wide and fan of 1k, 10k and 100k nodes, as a table
    bench/linear.py --only chain --nodes 10000
    bench/linear.py --json                  one object a line
    bench/linear.py --write chain --nodes 1000 -o chain.onnx

    chain     each node reads the one before: additions and products with vectors of their own, activations, a matrix product every 32 nodes
    products  a chain of matrix products: as many kernels as nodes
    wide      one input read by half of the nodes, which the others add up in a tree
    fan       branches of two nodes that read one input; their results are the parts of one concatenation

`tenon info` reads the file, runs the passes, fuses, lowers every distinct kernel to loops and places all buffers; microseconds a node of each.
"""
import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx

from models import Builder

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 64


def chain(n):
    b = Builder()
    x = b.input("x", [4, WIDTH])
    matrix = b.weight(WIDTH, WIDTH)
    for i in range(n):
        if i % 32 == 31:
            x = b("MatMul", x, matrix)
        elif i % 2:
            x = b(("Relu", "Tanh", "Sigmoid")[i // 2 % 3], x)
        else:
            x = b(("Add", "Mul")[i // 2 % 2], x, b.weight(WIDTH))
    b.output(x, [4, WIDTH])
    return b.model("chain")


def products(n):
    b = Builder()
    x = b.input("x", [4, WIDTH])
    matrices = [b.weight(WIDTH, WIDTH) for _ in range(4)]
    for i in range(n):
        x = b("MatMul", x, matrices[i % 4])
    b.output(x, [4, WIDTH])
    return b.model("products")


def wide(n):
    b = Builder()
    x = b.input("x", [4, WIDTH])
    values = [b("Mul", x, b.weight(WIDTH)) for _ in range(n // 2)]
    while len(values) > 1:
        values = [b("Add", *values[i:i + 2]) if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)]
    b.output(values[0], [4, WIDTH])
    return b.model("wide")


def fan(n):
    b = Builder()
    x = b.input("x", [4, WIDTH])
    parts = [b("Tanh", b("Mul", x, b.weight(WIDTH))) for _ in range(n // 2)]
    b.output(b("Concat", *parts, axis=0), [4 * len(parts), WIDTH])
    return b.model("fan")


GRAPHS = {function.__name__: function for function in (chain, products, wide, fan)}
STAGES = ("import", "passes", "fuse", "lower", "plan")


def measure(build, model):
    """What `tenon info --json` says of its stages, the whole process' seconds, its largest memory in bytes."""
    start = time.perf_counter()
    process = subprocess.Popen([build / "tenon", "info", model, "--json", "--threads=1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate()
    if process.returncode:
        sys.exit(err.strip())
    report = json.loads(out)
    return report["seconds"], report["memory"], time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def row(build, name, nodes):
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model.onnx"
        onnx.save(GRAPHS[name](nodes), model)
        seconds, memory, total, most = measure(build, model)
    return {"name": name, "nodes": nodes, **{stage + "_us": seconds[stage] / nodes * 1e6 for stage in STAGES}, "total_s": total, "most_bytes": most,
            "arena_bytes": memory["arena_bytes"], "arena_lower_bound": memory["arena_lower_bound"]}


def main():
    parser = argparse.ArgumentParser(description="How compile time and memory grow with a network's nodes, without code generation.")
    parser.add_argument("--only", action="append", choices=GRAPHS, help="a graph (default: all)")
    parser.add_argument("--nodes", action="append", type=int, help="how many (default: 1000, 10000, 100000)")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--write", choices=GRAPHS, help="only writes the graph to -o")
    parser.add_argument("-o", type=pathlib.Path, default=pathlib.Path("model.onnx"))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", metavar="DIR", help="a release build")
    options = parser.parse_args()
    sizes = options.nodes or [1000, 10000, 100000]
    if options.write:
        onnx.save(GRAPHS[options.write](sizes[0]), options.o)
        return
    if not options.json:
        print(f"{'graph':8}{'nodes':>8}" + "".join(f"{stage + ' us':>11}" for stage in STAGES) + f"{'total s':>10}{'MiB':>8}{'plan/bound':>12}")
    for name in options.only or GRAPHS:
        for nodes in sizes:
            r = row(options.build, name, nodes)
            if options.json:
                print(json.dumps(r), flush=True)
            else:
                print(f"{name:8}{nodes:8}" + "".join(f"{r[stage + '_us']:11.2f}" for stage in STAGES) +
                      f"{r['total_s']:10.2f}{r['most_bytes'] / 2**20:8.0f}{r['arena_bytes'] / max(r['arena_lower_bound'], 1):12.3f}", flush=True)


if __name__ == "__main__":
    main()
