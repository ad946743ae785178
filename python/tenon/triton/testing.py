"""Timing of kernels, and tables of it."""
import statistics
import sys
import time

from . import _cuda


def _times_cpu(fn, warmup, rep, before):
    start = time.perf_counter()
    fn()
    once = max(time.perf_counter() - start, 1e-7) * 1e3
    for _ in range(max(1, int(warmup / once))):
        fn()
    times = []
    for _ in range(max(3, min(100_000, int(rep / once)))):
        before()
        start = time.perf_counter()
        fn()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _times_gpu(device, fn, warmup, rep, before):
    fn()
    trial = 5
    once = max(device.time(fn, trial)[1] / trial, 1e-3)
    device.time(fn, max(1, min(1000, int(warmup / once))))
    return device.time(fn, max(3, min(10_000, int(rep / once))), before)[0]


def _gpu_in_use():
    """The GPU that this process works with, as PyTorch or a launch began to; None: none yet."""
    torch = sys.modules.get("torch")
    used = _cuda.in_use or (torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized())
    return _cuda.device(_cuda.current_device()) if used and _cuda.is_there() else None


def do_bench(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean"):
    """Milliseconds of fn(). warmup, rep: how long to warm up and to measure, milliseconds. Returns the mean (return_mode: mean, median, min, max, all), or
    the quantiles asked for. In a process that uses a GPU by the GPU's clock, with nothing of fn's data in its L2 cache; what fn does on the CPU counts too."""

    def before():
        for tensor in grad_to_none or ():
            tensor.grad = None

    first = _gpu_in_use()
    if first is None:
        fn()  # it may be what brings the GPU into use
        first = _gpu_in_use()
    times = _times_cpu(fn, warmup, rep, before) if first is None else _times_gpu(first, fn, warmup, rep, before)
    if quantiles is not None:
        ordered = sorted(times)
        found = [ordered[round(q * (len(ordered) - 1))] for q in quantiles]
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return times
    return {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}[return_mode](times)


def assert_close(x, y, atol=1e-2, rtol=0.0, err_msg=""):
    import numpy

    numpy.testing.assert_allclose(numpy.asarray(x, dtype=numpy.float64), numpy.asarray(y, dtype=numpy.float64), atol=atol, rtol=rtol, err_msg=err_msg)


class Benchmark:
    """What perf_report varies: x_vals of x_names (numbers, or tuples of one a name) against line_vals of line_arg; args are fixed."""

    def __init__(self, x_names, x_vals, line_arg, line_vals, line_names, plot_name, args, xlabel="", ylabel="", x_log=False, y_log=False, styles=None):
        self.x_names, self.x_vals, self.line_arg, self.line_vals, self.line_names = x_names, x_vals, line_arg, line_vals, line_names
        self.plot_name, self.args, self.xlabel, self.ylabel, self.x_log, self.y_log, self.styles = plot_name, args, xlabel, ylabel, x_log, y_log, styles


class Mark:
    def __init__(self, fn, benchmarks):
        self.fn, self.benchmarks = fn, benchmarks

    def run(self, show_plots=False, print_data=False, save_path="", return_df=False, **named):
        """Measures, prints a table, writes PLOT_NAME.csv to save_path. Returns rows of numbers, a list for each benchmark, with return_df."""
        import os

        several = isinstance(self.benchmarks, (list, tuple))
        tables = []
        for b in self.benchmarks if several else [self.benchmarks]:
            rows = []
            for x in b.x_vals:
                given = dict(zip(b.x_names, x if isinstance(x, (tuple, list)) else [x] * len(b.x_names)))
                y = [self.fn(**given, **{b.line_arg: line}, **b.args, **named) for line in b.line_vals]
                rows.append([*given.values(), *(v[0] if isinstance(v, (tuple, list)) else v for v in y)])
            header = [*b.x_names, *b.line_names]
            if print_data or not (save_path or return_df):
                print(f"{b.plot_name}:")
                print("  ".join(f"{h:>14}" for h in header))
                for row in rows:
                    print("  ".join(f"{v:>14.6g}" if isinstance(v, float) else f"{v!s:>14}" for v in row))
            if save_path:
                os.makedirs(save_path, exist_ok=True)
                with open(os.path.join(save_path, f"{b.plot_name}.csv"), "w") as out:
                    out.write("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n")
            tables.append(rows)
        return (tables if several else tables[0]) if return_df else None


def perf_report(benchmarks):
    """Decorator: a function of sizes that returns one number (or a tuple that starts with it) becomes a report with run()."""
    return lambda fn: Mark(fn, benchmarks)
