#!/usr/bin/env python3
"""Measures Tenon against the machine's limits and against ONNX Runtime.

    bench/run.py                     all figures, as a table; a few minutes
    bench/run.py --only matmul_1024  one figure (or a few: --only a --only b)
    bench/run.py --json              one object a line: name, value, unit, limit, peer, ratio, goal, met
    bench/run.py --markdown          the table of README.md
    bench/run.py --threads 2         only this number of threads, where a figure is measured for several

`limit` is what this machine can do at most, `peer` what ONNX Runtime takes for the same model, inputs and threads; both are measured in turns with
Tenon in the same run, because clocks and neighbours change. In each turn every side has some tenths of a second; `value`, `limit` and `peer` are
medians over the turns, `ratio` is the median of the turns' ratios: value / limit where there is a limit, else value / peer. What runs on one
thread is timed by that thread's processor time, which leaves out what others took of the core, and the median of a turn's runs counts; with
more threads the fastest by the wall clock. Outputs are compared with the peer's before anything is timed.
"""
import argparse
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
import onnxruntime

import models
import networks

ROOT = pathlib.Path(__file__).resolve().parent.parent
TURNS, SECONDS = 5, 0.25


def aligned(array):
    """A copy at a multiple of 64 bytes, as a caller who cares would have it."""
    raw = np.empty(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start:start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


# ---- the sides --------------------------------------------------------------------------------------------------------------

class Limits:
    """Talks with bench/limits, which measures what a core can do."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, request):
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def fma(self):
        return self.ask(f"fma {SECONDS / 2}")

    def copy(self, count):
        return self.ask(f"copy {count} {SECONDS}")


class Peer:
    """ONNX Runtime with its inputs and outputs in place."""

    def __init__(self, model, threads, inputs):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        start = time.perf_counter()
        self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.compile_ms = (time.perf_counter() - start) * 1e3
        self.names = [output.name for output in self.session.get_outputs()]
        self.values = self.session.run(self.names, inputs)
        self.binding = self.session.io_binding()
        self.kept = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in [*inputs.values(), *self.values]]
        for name, value in zip(inputs, self.kept):
            self.binding.bind_ortvalue_input(name, value)
        for name, value in zip(self.names, self.kept[len(inputs):]):
            self.binding.bind_ortvalue_output(name, value)

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def outputs(self):
        return self.values


def run_ms(side, seconds, threads=1):
    """One thread: the median of its processor time. Several: the fastest by the wall clock."""
    clock, pick = (time.thread_time, statistics.median) if threads == 1 else (time.perf_counter, min)
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = clock()
        side.run()
        times.append(clock() - start)
    return pick(times) * 1e3


# ---- figures ----------------------------------------------------------------------------------------------------------------

FIGURES = {}


def figure(function):
    FIGURES[function.__name__] = function
    return function


def turns(ours, limit=None, peer=None, count=TURNS):
    """Medians of (ours, limit, peer, ours / limit or ours / peer) over the turns; each side a function without arguments."""
    rows = []
    for _ in range(count):
        mine, most, theirs = ours(), limit() if limit else None, peer() if peer else None
        time.sleep(0.01)  # the peer's threads spin for a while after a run
        rows.append((mine, most, theirs, mine / (most or theirs) if most or theirs else None))
    return [statistics.median(column) if column[0] is not None else None for column in zip(*rows)]


def row(name, unit, measured, goal=None, met=None):
    value, limit, peer, ratio = measured
    return {"name": name, "value": value, "unit": unit, "limit": limit, "peer": peer, "ratio": ratio, "goal": goal,
            "met": met(ratio) if met and ratio is not None else None}


def compare(name, ours, theirs):
    for i, (mine, their) in enumerate(zip(ours, theirs)):
        if mine.shape != their.shape:
            raise networks.Error(f"{name}: output {i} has shape {mine.shape}, the peer's {their.shape}")
        scale = np.abs(their).mean() + np.abs(their)
        if not np.all(np.abs(mine - their) <= 1e-3 * scale + 1e-6):
            raise networks.Error(f"{name}: output {i} differs from the peer's by {np.max(np.abs(mine - their)):.3g}")


def floats(seed, *shape):
    return aligned(np.random.default_rng(seed).standard_normal(shape, np.float32))


class Bench:
    def __init__(self, build, threads):
        self.networks, self.build = networks.Library(build / "libtenon.so"), build
        self.limits, self.threads = Limits(build / "bench" / "limits"), threads

    def thread_counts(self):
        return [self.threads] if self.threads else [n for n in (1, 2) if n <= len(os.sched_getaffinity(0))]

    def pair(self, name, model, inputs, threads):
        """Tenon and ONNX Runtime on one model, outputs compared."""
        ours, theirs = self.networks.load(model, threads, inputs), Peer(model, threads, inputs)
        compare(name, ours.outputs(), theirs.outputs())
        return ours, theirs

    def against_peer(self, name, model, inputs, goal, met, count=TURNS, seconds=SECONDS):
        for threads in self.thread_counts():
            label = f"{name}/{threads}"
            ours, theirs = self.pair(label, model, inputs, threads)
            measured = turns(lambda: run_ms(ours, seconds, threads), None, lambda: run_ms(theirs, seconds, threads), count)
            yield row(label, "ms", measured, goal, met)
            ours.close()


@figure
def fma_peak(bench):
    """The rate of f32 multiply-adds on registers that one core reaches."""
    yield row("fma_peak", "GFLOP/s", turns(bench.limits.fma))


@figure
def copy(bench):
    """64 MB to 64 MB on one core, counting bytes read and written."""
    count = 4096 * 4096 * 4
    yield row("copy", "GB/s", turns(lambda: 2 * count / bench.limits.copy(count) * 1e-6))


def matmul(bench, name, n, model, least):
    inputs = {"a": floats(1, n, n)}
    if name.endswith("_inputs"):
        inputs["b"] = floats(2, n, n)
    ours, theirs = bench.pair(name, model(), inputs, 1)
    rate = lambda side: 2 * n ** 3 / run_ms(side, SECONDS) * 1e-6
    measured = turns(lambda: rate(ours), bench.limits.fma, lambda: rate(theirs))
    yield row(name, "GFLOP/s", measured, f"at least {least} of the limit", lambda ratio: ratio >= least)
    ours.close()


@figure
def matmul_1024(bench):
    """1024^3 f32 product with a constant, one core."""
    yield from matmul(bench, "matmul_1024", 1024, models.matmul_1024, 0.85)


@figure
def matmul_1024_inputs(bench):
    """The same, both operands inputs."""
    yield from matmul(bench, "matmul_1024_inputs", 1024, models.matmul_1024_inputs, 0.85)


@figure
def matmul_512(bench):
    """512^3, a constant."""
    yield from matmul(bench, "matmul_512", 512, models.matmul_512, 0.80)


@figure
def matmul_512_inputs(bench):
    """512^3, both operands inputs."""
    yield from matmul(bench, "matmul_512_inputs", 512, models.matmul_512_inputs, 0.80)


def memory_bound(bench, name, model, inputs, count, goal, met):
    ours, theirs = bench.pair(name, model, inputs, 1)
    measured = turns(lambda: run_ms(ours, SECONDS), lambda: bench.limits.copy(count), lambda: run_ms(theirs, SECONDS))
    yield row(name, "ms", measured, goal, met)
    ours.close()


@figure
def softmax_4096(bench):
    """Softmax written out over rows of 4096, 4096 of them, one core; the limit is a copy of as many bytes."""
    yield from memory_bound(bench, "softmax_4096", models.softmax_4096(), {"x": floats(3, 4096, 4096)}, 4 << 24, "at most 1.3 copies",
                            lambda ratio: ratio <= 1.3)


@figure
def layernorm_4096(bench):
    """LayerNorm written out, likewise."""
    yield from memory_bound(bench, "layernorm_4096", models.layernorm_4096(), {"x": floats(4, 4096, 4096)}, 4 << 24, "at most 1.3 copies",
                            lambda ratio: ratio <= 1.3)


@figure
def elementwise(bench):
    """A random chain of 24 elementwise operations on 16 MB inputs, one core; the limit is a copy of one of them."""
    inputs = {"x": floats(5, 2048, 2048), "y": floats(6, 2048, 2048), "row": floats(7, 2048)}
    yield from memory_bound(bench, "elementwise", models.elementwise(), inputs, 2048 * 2048 * 4, None, None)


IMAGE = {"gpu_0/data_0": lambda: floats(8, 1, 3, 224, 224)}


def image():
    return {name: make() for name, make in IMAGE.items()}


def cold_compile(bench, model, threads):
    """Milliseconds from a new process's first look at the file to a network that is ready to run."""
    out = subprocess.run([bench.build / "tenon", "bench", model, "--json", "--seconds=0", f"--threads={threads}"], capture_output=True, text=True)
    if out.returncode:
        raise networks.Error(out.stderr.strip())
    return json.loads(out.stdout)["compile_ms"]


def compile_figure(bench, name, model, inputs, goal=None, met=None):
    threads = bench.threads or bench.thread_counts()[-1]
    value, limit, peer, ratio = turns(lambda: cold_compile(bench, model, threads), None, lambda: Peer(model, threads, inputs).compile_ms, 3)
    result = row(f"{name}/{threads}", "ms", (value, limit, peer, ratio), goal)
    result["met"] = met(value) if met else None
    yield result


@figure
def resnet50_compile(bench):
    """Cold compile of light_resnet50 to ready to run; the peer's figure is the creation of its session."""
    yield from compile_figure(bench, "resnet50_compile", models.resnet50(), image(), "below 2000 ms", lambda ms: ms < 2000)


@figure
def resnet50_weights_compile(bench):
    """The same network with 100 MB of weights in the file, all of them different."""
    yield from compile_figure(bench, "resnet50_weights_compile", models.resnet50_weights(), image())


@figure
def resnet50_run(bench):
    """light_resnet50, batch 1, 224 x 224."""
    yield from bench.against_peer("resnet50_run", models.resnet50(), image(), "at most 1.5", lambda ratio: ratio <= 1.5, seconds=0.5)


@figure
def resnet50_weights_run(bench):
    """Batch 1, weights that differ."""
    yield from bench.against_peer("resnet50_weights_run", models.resnet50_weights(), image(), "at most 1.5", lambda ratio: ratio <= 1.5, seconds=0.5)


@figure
def light(bench):
    """The nine light networks of the ONNX suite, batch 1."""
    for name in models.LIGHT:
        argument, shape = models.light_input(name)
        yield from bench.against_peer(f"light_{name}", models.light(name), {argument: floats(12, *shape)}, "at most 1.1", lambda ratio: ratio <= 1.1)


@figure
def mobilenet_v2(bench):
    """Batch 1, random weights."""
    yield from bench.against_peer("mobilenet_v2", models.mobilenet_v2(), {"picture": floats(13, 1, 3, 224, 224)}, "at most 1.1", lambda ratio: ratio <= 1.1)


@figure
def layout(bench):
    """Networks against themselves without the pass that takes transposes away (limit): bytes of intermediates, and time on one core."""
    for name in ("resnet50", "densenet121", "shufflenet"):
        model, (argument, shape) = models.light(name), models.light_input(name)
        value, limit = between(bench, model), between(bench, model, "--passes=-layout")
        yield row(f"layout_{name}_bytes", "MB", (value / 1e6, limit / 1e6, None, value / limit), "at most 1", lambda ratio: ratio <= 1)
        inputs = {argument: floats(12, *shape)}
        with_it, without = (bench.networks.load(model, 1, inputs, passes=passes) for passes in (None, "-layout"))
        compare(f"layout_{name}", with_it.outputs(), without.outputs())
        yield row(f"layout_{name}", "ms", turns(lambda: run_ms(with_it, SECONDS), lambda: run_ms(without, SECONDS)), "at most 1", lambda ratio: ratio <= 1)
        with_it.close(), without.close()


def sentence():
    random = np.random.default_rng(9)
    keep = np.ones((1, models.SEQUENCE), np.int64)
    keep[:, 100:] = 0
    values = {"input_ids": random.integers(0, models.WORDS, keep.shape), "token_type_ids": np.zeros_like(keep), "attention_mask": keep}
    return {name: aligned(value) for name, value in values.items()}


@figure
def bert_base(bench):
    """BERT: 12 layers, hidden 768, 12 heads, batch 1, sequence 128, f32."""
    yield from bench.against_peer("bert_base", models.bert_base(), sentence(), "at most 1.5", lambda ratio: ratio <= 1.5, seconds=0.7)


def between(bench, model, *options):
    """Bytes of intermediates that kernels read and write in a run."""
    out = subprocess.run([bench.build / "tenon", "explain", model, "--json", "--no-run", *options], capture_output=True, text=True)
    if out.returncode:
        raise networks.Error(out.stderr.strip())
    return json.loads(out.stdout)["totals"]["bytes_between"]


@figure
def bert_fusion(bench):
    """BERT against itself with one kernel an operation (limit): bytes of intermediates, and time on one core."""
    model = models.bert_base()
    value, limit = between(bench, model), between(bench, model, "--passes=-fuse")
    yield row("bert_fusion_bytes", "MB", (value / 1e6, limit / 1e6, None, value / limit), "at most 0.33", lambda ratio: ratio <= 1 / 3)
    fused, apart = (bench.networks.load(model, 1, sentence(), passes=passes) for passes in (None, "-fuse"))
    compare("bert_fusion", fused.outputs(), apart.outputs())
    yield row("bert_fusion", "ms", turns(lambda: run_ms(fused, 0.7), lambda: run_ms(apart, 0.7)), "at most 0.77", lambda ratio: ratio <= 1 / 1.3)
    fused.close(), apart.close()


def kernel_times(bench, model, *options):
    """Of each kernel the nodes that it computes and its fastest time in ms, on one core."""
    out = subprocess.run([bench.build / "tenon", "explain", model, "--json", "--threads", "1", "--seconds", "2", *options], capture_output=True, text=True)
    if out.returncode:
        raise networks.Error(out.stderr.strip())
    return [(frozenset(k["nodes"]), k["ms"]) for k in json.loads(out.stdout)["kernels"] if k["nodes"] and k["ms"]]


@figure
def groups(bench):
    """Each kernel of several nodes against kernels of an operation each (peer) for the same nodes: all of a network's, and the one that gains least of those that take a hundredth of the time."""
    for name, model in (("bert_base", models.bert_base()), ("resnet50", models.resnet50_weights())):
        together, apart, pairs = {}, {}, []
        for _ in range(TURNS):
            for times, options in ((together, []), (apart, ["--passes=-fuse"])):
                for i, (nodes, ms) in enumerate(kernel_times(bench, model, *options)):
                    times[i, nodes] = min(ms, times.get((i, nodes), ms))
        for (_, nodes), ms in together.items():
            parts = [other for (_, held), other in apart.items() if held <= nodes]
            covered = frozenset().union(*(held for _, held in apart if held <= nodes))
            if len(parts) > 1 and covered == nodes:
                pairs.append((ms, sum(parts)))
        if not pairs:
            continue
        total = sum(ms for ms, _ in pairs)
        worst = max((pair for pair in pairs if pair[0] >= total / 100), key=lambda pair: pair[0] / pair[1])
        parts = sum(other for _, other in pairs)
        yield row(f"groups/{name}", "ms", (total, None, parts, total / parts), "at most 1", lambda ratio: ratio <= 1)
        yield row(f"groups/{name}/least", "ms", (worst[0], None, worst[1], worst[0] / worst[1]), "at most 1", lambda ratio: ratio <= 1)


@figure
def bert_symbolic(bench):
    """BERT compiled for any batch and length against the same with known sizes (limit), on one core."""
    anyhow, known = (bench.networks.load(model, 1, sentence()) for model in (models.bert_symbolic(), models.bert_base()))
    compare("bert_symbolic", anyhow.outputs(), known.outputs())
    yield row("bert_symbolic", "ms", turns(lambda: run_ms(anyhow, 0.7), lambda: run_ms(known, 0.7)), "at most 1.1", lambda ratio: ratio <= 1.1)
    anyhow.close(), known.close()


@figure
def bert_base_compile(bench):
    """Cold compile of BERT, 438 MB of weights."""
    yield from compile_figure(bench, "bert_base_compile", models.bert_base(), sentence())


@figure
def magika(bench):
    """Type of a file from 2048 bytes."""
    inputs = {"bytes": aligned(np.random.default_rng(10).integers(0, 257, (1, 2048)).astype(np.int32))}
    yield from bench.against_peer("magika", models.magika(), inputs, None, None)


@figure
def mtcnn(bench):
    """Face detection, three networks: a 12 x 12 detector over a picture of 240 x 320, then 16 candidates of 24 x 24, then 4 of 48 x 48."""
    sizes = {"pnet": ("input_1", 1, 240, 320, 3), "rnet": ("input_2", 16, 24, 24, 3), "onet": ("input_3", 4, 48, 48, 3)}
    for name, (argument, *shape) in sizes.items():
        yield from bench.against_peer(f"mtcnn_{name}", models.mtcnn(name), {argument: floats(11, *shape)}, None, None, 3)


@figure
def kernel_compile(bench):
    """Compile time of ResNet-50 and BERT divided by their distinct kernels, one thread."""
    for name, model, inputs in (("resnet50", models.resnet50(), image()), ("bert_base", models.bert_base(), sentence())):
        times, kernels = [], 0
        for _ in range(3):
            network = bench.networks.load(model, 1, inputs)
            info = network.info()
            kernels = info.kernels
            times.append((info.lower_seconds + info.emit_seconds + info.link_seconds) * 1e3 / max(kernels, 1))
            network.close()
        result = row(f"kernel_compile_{name}", "ms", (statistics.median(times), None, None, None))
        result["kernels"] = kernels
        yield result


@figure
def import_bert(bench):
    """Reading the 438 MB file of BERT into a graph; weights stay where the file is mapped."""
    times = []
    for _ in range(3):
        network = bench.networks.load(models.bert_base(), 2, sentence())
        times.append(network.import_ms)
        network.close()
    yield row("import_bert", "ms", (statistics.median(times), None, None, None))


# ---- kernels in Triton's language ------------------------------------------------------------------------------------------

class Launch:
    """A launch of a kernel on one thread, in the shape of a side."""

    def __init__(self, launcher, *arguments, **named):
        self.run = lambda: launcher(*arguments, threads=1, **named)


def kernels(bench, name):
    """A module of examples/kernels, on the library that is measured, without compiled kernels on the disk."""
    os.environ.update(TENON_LIBRARY=str(bench.build.resolve() / "libtenon.so"), TENON_CACHE="")
    for folder in (ROOT / "python", ROOT / "examples" / "kernels"):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    return importlib.import_module(name)


@figure
def kernel_softmax(bench):
    """The fused softmax of rows as a user writes it: 64 MB to 64 MB, one core."""
    softmax = kernels(bench, "softmax")
    for cols in (1024, 4096, 16384):
        x = floats(7, 2 ** 24 // cols, cols)
        y = aligned(np.zeros_like(x))
        ours = Launch(softmax.fused_softmax[(len(x),)], y, x, cols, BLOCK=cols)
        ours.run()
        if not np.allclose(y[:64], softmax.reference(x[:64]), rtol=1e-5, atol=1e-12):
            raise networks.Error(f"softmax of {cols} columns is wrong")
        yield row(f"kernel_softmax_{cols}", "ms", turns(lambda: run_ms(ours, SECONDS), lambda: bench.limits.copy(x.nbytes)), "at most 1.11 copies",
                  lambda ratio: ratio <= 1 / 0.9)


@figure
def kernel_launch(bench):
    """A launch of a kernel with three tensors and a number that adds 16 elements, from Python."""
    add = kernels(bench, "vector_add").vector_add
    x, y, z = (floats(i, 16) for i in range(3))
    launcher = add[(1,)]
    launcher(x, y, z, 16, BLOCK=16)
    times = []
    for _ in range(20):
        start = time.thread_time()
        for _ in range(1000):
            launcher(x, y, z, 16, BLOCK=16)
        times.append((time.thread_time() - start) * 1e3)
    yield row("kernel_launch", "us", (statistics.median(times), None, None, statistics.median(times)), "at most 5 us", lambda us: us <= 5)


@figure
def kernel_cold(bench):
    """From text to ready code, one kernel, nothing cached: processor time of the whole process."""
    softmax, matmul, attention, layer_norm = (kernels(bench, name) for name in ("softmax", "matmul", "attention", "layer_norm"))
    q = floats(1, 2, 128, 64)
    row_of = np.zeros((2, 128), np.float32)
    sides = {
        "softmax": lambda: softmax.fused_softmax.warmup(q, q, 128, BLOCK=128, grid=(1,)),
        "layer_norm": lambda: layer_norm.forward.warmup(q, q, q, q, q, q, 128, 128, 1e-5, BLOCK=1024, grid=(1,)),
        "matmul": lambda: matmul.matmul_kernel.base.warmup(q, q, q, 512, 512, 512, 512, 1, 512, 1, 512, 1, BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, GROUP=8,
                                                         ACTIVATION="leaky_relu", grid=(1,)),
        "attention": lambda: attention.forward.warmup(q, q, q, q, row_of, 0.1, 128, BLOCK_M=64, BLOCK_N=32, HEAD=64, CAUSAL=True, grid=(1,)),
    }
    bases = {"softmax": softmax.fused_softmax, "layer_norm": layer_norm.forward, "matmul": matmul.matmul_kernel.base, "attention": attention.forward}
    for name, compile_one in sides.items():
        times = []
        for _ in range(5):
            bases[name]._kernels.clear()
            start = time.process_time()
            compile_one()
            times.append((time.process_time() - start) * 1e3)
        middle = statistics.median(times)
        yield row(f"kernel_cold_{name}", "ms", (middle, None, None, middle), "at most 30 ms", lambda ms: ms <= 30)


# ---- reporting -----------------------------------------------------------------------------------------------------------------

def number(value):
    return "" if value is None else f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def verdict(result):
    return "" if result["met"] is None else "yes" if result["met"] else "no"


def show_json(result):
    print(json.dumps({key: round(value, 6) if isinstance(value, float) else value for key, value in result.items()}), flush=True)


def show_markdown(result):
    if "error" not in result:
        value = f"{number(result['value'])} {result['unit']}"
        print(f"| `{result['name']}` | {value} | {number(result['limit'])} | {number(result['peer'])} | {number(result['ratio'])} | "
              f"{result['goal'] or ''} | {verdict(result)} |", flush=True)


def show_line(result):
    if "error" in result:
        print(f"{result['name']:26} {result['error']}", flush=True)
        return
    print(f"{result['name']:26} {number(result['value']):>9} {result['unit']:8} {number(result['limit']):>9} {number(result['peer']):>9} "
          f"{number(result['ratio']):>8}  {result['goal'] or '':28} {verdict(result)}", flush=True)


def show_head(options):
    if options.markdown:
        print("| figure/threads | Tenon | limit | ONNX Runtime | ratio | wanted | met |\n| --- | --- | --- | --- | --- | --- | --- |")
    elif not options.json:
        print(f"{'figure/threads':26} {'value':>9} {'unit':8} {'limit':>9} {'peer':>9} {'ratio':>8}  {'goal':28} met")


def arguments():
    parser = argparse.ArgumentParser(description="Measures Tenon against this machine's limits and against ONNX Runtime.")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a figure to measure (default: all)")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--markdown", action="store_true", help="a table in Markdown")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="instead of 1 and 2")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", metavar="DIR", help="a release build")
    parser.add_argument("--list", action="store_true", help="names of the figures")
    options = parser.parse_args()
    unknown = [name for name in options.only if name not in FIGURES]
    if unknown:
        parser.error(f"no figure is called {unknown[0]}; there are: {', '.join(FIGURES)}")
    return options


def main():
    options = arguments()
    if options.list:
        for name, function in FIGURES.items():
            print(f"{name:26} {(function.__doc__ or '').splitlines()[0] if function.__doc__ else ''}")
        return 0
    bench, failed = Bench(options.build, options.threads), False
    show = show_json if options.json else show_markdown if options.markdown else show_line
    show_head(options)
    for name in options.only or FIGURES:
        try:
            for result in FIGURES[name](bench):
                show(result)
        except networks.Error as error:
            failed = True
            show({"name": name, "error": str(error)})
    return failed


if __name__ == "__main__":
    sys.exit(main())
