"""`tenon kernel` as a user meets it: argument forms, what it prints and saves, reports, exit codes."""
import ctypes.util
import json
import os
import pathlib
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest

TENON = os.environ.get("TENON", "build/release/tenon")
CHECKED = os.environ.get("TENON_CHECKED", TENON)
FAKE = pathlib.Path(TENON).resolve().parent / "unit/fake_cuda.so"
KERNELS = pathlib.Path(__file__).resolve().parents[1] / "triton/elementwise.py"
SOFTMAX = pathlib.Path(__file__).resolve().parents[2] / "examples/kernels/softmax.py"
RIGHT, AT_FAULT, USAGE, DIFFERS = range(4)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """All tests of one run share a cache of their own."""
    monkeypatch.setenv("TENON_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def kernel(name, *arguments, code=RIGHT, program=TENON, file=KERNELS):
    done = subprocess.run([program, "kernel", f"{file}:{name}", *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done


def args(**values):
    return [part for name, value in values.items() for part in ("--arg", f"{name}={value}")]


def add(tmp_path, n=100, **more):
    x, y = np.arange(n, dtype=np.float32), np.linspace(0, 1, n, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    return x + y, [*args(x=tmp_path / "x.npy", y=tmp_path / "y.npy", out=f"f32[{n}]", n=n), "--const", "BLOCK=64", "--grid", -(-n // 64)]


def test_runs_and_saves(tmp_path):
    expected, arguments = add(tmp_path)
    done = kernel("add", *arguments, "--save", tmp_path / "saved")
    assert "argument 2 'out': f32[100]  min 0" in done.stdout
    np.testing.assert_array_equal(np.load(tmp_path / "saved/out.npy"), expected)
    np.testing.assert_array_equal(np.load(tmp_path / "saved/x.npy"), np.arange(100))
    assert sorted(p.name for p in (tmp_path / "saved").iterdir()) == ["out.npy", "x.npy", "y.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.arange(100))  # files that are read stay as they are


@pytest.mark.parametrize("kind,dtype", [("f16", np.float16), ("f32", np.float32), ("f64", np.float64), ("i8", np.int8), ("u8", np.uint8), ("i16", np.int16), ("u16", np.uint16),
                                        ("i32", np.int32), ("u32", np.uint32), ("i64", np.int64), ("u64", np.uint64)])
def test_types_of_files(tmp_path, kind, dtype):
    x = np.arange(50).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    kernel("scale", *args(x=tmp_path / "x.npy", out="f32[50]", n=50, alpha=0.5), "--save", tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), x.astype(np.float32) * np.float32(0.5))


@pytest.mark.parametrize("kind,dtype,bits", [("bf16", ml_dtypes.bfloat16, np.uint16), ("f8e4m3", ml_dtypes.float8_e4m3fn, np.uint8), ("f8e5m2", ml_dtypes.float8_e5m2, np.uint8)])
def test_types_that_numpy_lacks(tmp_path, kind, dtype, bits):
    x = np.arange(-8, 8).astype(np.float32).astype(dtype)
    np.save(tmp_path / "bits.npy", x.view(bits))
    np.save(tmp_path / "signed.npy", x.view(np.int16 if bits is np.uint16 else np.int8))
    for name in ("bits", "signed"):
        kernel("scale", *args(x=f"{kind}:{tmp_path / name}.npy", out=f"{kind}[16]", n=16, alpha=1.5), "--save", tmp_path / name)
        saved = np.load(tmp_path / name / "out.npy")
        assert saved.dtype == bits
        np.testing.assert_array_equal(saved.view(dtype).astype(np.float32), (x.astype(np.float32) * 1.5).astype(dtype).astype(np.float32))


def test_fortran_order_is_made_row_major(tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "x.npy", np.asfortranarray(x))
    kernel("row_sums", *args(x=tmp_path / "x.npy", out="f32[3]", stride=4, n=4), "--const", "BLOCK=16", "--grid=3", "--save", tmp_path / "o")
    np.testing.assert_array_equal(np.load(tmp_path / "o/out.npy"), x.sum(1))
    np.testing.assert_array_equal(np.load(tmp_path / "o/x.npy"), x)


def test_constants(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(-8, 8, dtype=np.float32))
    arguments = [*args(x=tmp_path / "x.npy", out="f32[16]", n=16, alpha=2.0), "--save", tmp_path]
    kernel("scale", *arguments, "--const", "ACTIVATION='relu'")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), np.maximum(np.arange(-8, 8) * 2, 0))
    kernel("scale", *args(x=tmp_path / "x.npy", out="f32[16]", alpha=2.0), "--const", "n=3", "--save", tmp_path)  # any parameter may be a constant
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), [-16, -14, -12] + [0] * 13)


def test_numbers_and_grid(tmp_path):
    kernel("programs", *args(out="i32[24]"), "--grid=2,3,4", "--save", tmp_path)
    z, y, x = np.mgrid[:4, :3, :2]
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), (x + 10 * y + 100 * z).ravel())
    kernel("grid_names", *args(out="i64[2]", grid_x=1, begin=-16, end=2**33), "--grid=2", "--save", tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), [1 - 160 + 100 * 2**33 + 2000] * 2)


def test_configurations(tmp_path):
    for config, block in ((0, 32), (1, 128)):
        kernel("tuned", *args(out="i32[128]", n=128), "--config", config, "--grid", 128 // block, "--save", tmp_path)
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), [block] * 128)
    assert "it has 2" in kernel("tuned", *args(out="i32[128]", n=128), "--config=2", code=USAGE).stderr


def test_configurations_that_a_function_makes(tmp_path):
    file = KERNELS.parent / "configurations.py"
    wanted = [(32, 0), (32, 1), (64, 0), (64, 1), (64, 2), (256, 9), (256, 9), (512, 9), (512, 9), (16, 1), (16, 2), (32, 1), (32, 2), (8, 8)]
    for i, (block, n) in enumerate(wanted):
        kernel("fill", *args(x="i32[1024]", n=1024), "--config", i, "--grid", 1, "--save", tmp_path, file=file)
        np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.where(np.arange(1024) < block, np.arange(1024) + n, 0))
    assert "it has 14" in kernel("fill", *args(x="i32[1024]", n=1024), "--config=14", code=USAGE, file=file).stderr
    line = 1 + file.read_text().splitlines().index("        if block <= torch.cuda.get_device_properties(0).multi_processor_count:")
    done = kernel("by_machine", *args(x="i32[64]", n=64), "--grid", 1, code=AT_FAULT, file=file)
    assert f"configurations.py:{line}:21: error: torch is a module of the host program" in done.stderr, done.stderr
    kernel("by_machine", *args(x="i32[64]", n=64), "--const", "BLOCK=64", "--grid", 1, file=file)
    kernel("tuned", *args(out="i32[128]", n=128), "--const", "BLOCK=16", "--save", tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy")[:17], [16] * 16 + [0])


@pytest.mark.parametrize("stage,part", [("tile", "kernel @add("), ("loop", "kernel @add("), ("llvm", "define void @add"), ("asm", "add:")])
def test_stages(tmp_path, stage, part):
    _, arguments = add(tmp_path)
    assert part in kernel("add", *arguments, f"--emit={stage}").stdout
    kernel("add", *arguments, f"--emit={stage}", "--output", tmp_path / "text")
    assert part in (tmp_path / "text").read_text()


def test_objects(tmp_path):
    _, arguments = add(tmp_path)
    kernel("add", *arguments, "--emit=obj", "-o", tmp_path / "add.o", "--machine=neon")
    assert (tmp_path / "add.o").read_bytes()[:4] == b"\x7fELF"


# ---- GPUs, of which there is none, or one that does nothing ---------------------------------------------------------------------

ON_GPU = """import triton
import triton.language as tl


@triton.jit
def f(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)
"""
needs_fake = pytest.mark.skipif(not FAKE.is_file(), reason="tests are not built")


@pytest.fixture
def on_gpu(tmp_path, monkeypatch):
    """A kernel on the fake GPU, whose kernels do nothing."""
    (tmp_path / "f.py").write_text(ON_GPU)
    np.save(tmp_path / "x.npy", np.arange(100, dtype=np.float32))
    monkeypatch.setenv("LD_PRELOAD", str(FAKE))

    def run(*options, **more):
        return kernel("f", *args(x=tmp_path / "x.npy", out="f32[100]", n=100), "--const", "BLOCK=64", "--grid=2", "--target=cuda", "--num-warps=2", *options,
                      file=tmp_path / "f.py", **more)

    return run


@needs_fake
def test_on_a_gpu(on_gpu, tmp_path):
    done = on_gpu("--save", tmp_path / "saved")
    assert "f for sm_90a: 64 threads a block, 0 bytes of shared memory, 104 registers a thread, 103 bytes of them spilled" in done.stdout
    np.testing.assert_array_equal(np.load(tmp_path / "saved/x.npy"), np.arange(100))  # went there and came back
    np.testing.assert_array_equal(np.load(tmp_path / "saved/out.npy"), 0)
    assert on_gpu(code=RIGHT).stdout == done.stdout  # from the disk


@needs_fake
def test_times_on_a_gpu(on_gpu):
    found = json.loads(on_gpu("--bench", "--json", "--seconds=0.001").stdout)
    assert found["median_ms"] == found["min_ms"] == 1.5 and found["launches"] == 3 and found["machine"] == "sm_90a" and found["threads"] == 64 and found["device"] == 0
    assert "launches on blocks of 64 threads (sm_90a)" in on_gpu("--bench", "--seconds=0.001").stdout


@needs_fake
def test_a_gpu_that_is_not_there(on_gpu):
    assert "there is no GPU 1: CUDA's driver shows 1" in on_gpu("--machine=cuda:1", code=AT_FAULT).stderr
    assert "there is no GPU 1: CUDA's driver shows 1" in on_gpu("--target=cuda:1", code=AT_FAULT).stderr
    assert "there is no GPU 1: CUDA's driver shows 1" in on_gpu("--target=cuda:1", "--machine=sm_80", code=AT_FAULT).stderr


@pytest.mark.skipif(bool(ctypes.util.find_library("cuda")), reason="there is a GPU")
def test_without_a_gpu(tmp_path):
    _, arguments = add(tmp_path)
    done = kernel("add", *arguments, "--target=cuda", code=AT_FAULT)
    assert "kernel add: machine 'sm_90a' can't run here: there is no GPU: libcuda.so.1 is not installed" in done.stderr
    assert "add for sm_90a: 128 threads a block" in done.stdout
    kernel("add", *arguments, "--target=cuda", "--bench", code=AT_FAULT)
    ptx = kernel("add", *arguments, "--emit=ptx", "--num-warps=8").stdout
    assert ".target sm_90a" in ptx and ".reqntid 256" in ptx and ".entry add(" in ptx
    assert ".target sm_80" in kernel("add", *arguments, "--emit=asm", "--machine=sm_80").stdout
    loop = kernel("add", *arguments, "--emit=loop", "--target=cuda").stdout
    assert "threads 128" in loop and "overlap" not in loop and "readonly" in loop  # each argument is a buffer of its own
    assert ") overlap" in kernel("add", *arguments, "--emit=loop").stdout


def test_clusters():
    """Long rows that several sweeps need are shared by CTAs of a cluster, of 16 warps at most; shorter ones, and those on an older GPU, are not."""
    def loop(n, block, machine="sm_90a", warps=32):
        arrays = args(output_ptr=f"f32[{n}]", input_ptr=f"f32[{n}]", n_cols=n)
        return kernel("fused_softmax", *arrays, f"--const=BLOCK={block}", f"--num-warps={warps}", f"--machine={machine}", "--emit=loop", file=SOFTMAX).stdout
    assert "threads 512 cluster 4" in loop(65536, 65536) and "threads 256 cluster 2" in loop(20000, 32768, warps=8)
    assert " cluster " not in loop(16384, 16384) and " cluster " not in loop(20000, 32768, machine="sm_80")


COUNTED = """
import triton
import triton.language as tl


@triton.jit
def f(a_ptr, b_ptr, sum_ptr, old_ptr, length, ORDER: tl.constexpr, KEEP: tl.constexpr):
    d = tl.arange(0, 64)
    b = tl.load(b_ptr + d[:, None] * 64 + d[None, :])
    for start in range(0, length, 64):
        rows = start + d
        a = tl.load(a_ptr + rows[:, None] * 64 + d[None, :], mask=rows[:, None] < length, other=0.0)
        old = tl.atomic_add(sum_ptr + rows[None, :] * 64 + d[:, None], tl.dot(b, a.T), mask=rows[None, :] < length, sem=ORDER)
        if KEEP:
            tl.store(old_ptr + rows[None, :] * 64 + d[:, None], old, mask=rows[None, :] < length)
"""


@pytest.mark.parametrize("order,keep,boxes", [("relaxed", False, True), ("acq_rel", False, True), ("relaxed", True, True), ("acq_rel", True, False)])
def test_loads_ahead_of_atomics(tmp_path, order, keep, boxes):
    """What a loop loads is copied ahead of an atomic that orders nothing for this program: a relaxed one, or one whose old value nobody looks at."""
    (tmp_path / "k.py").write_text(COUNTED)
    text = kernel("f", *args(a_ptr="f16[40960]", b_ptr="f16[4096]", sum_ptr="f32[40960]", old_ptr="f32[40960]", length=640), "--const", f"ORDER={order!r}", "--const", f"KEEP={keep}",
                  "--machine=sm_90a", "--emit=loop", file=tmp_path / "k.py").stdout
    assert ("@box_load_" in text) == boxes


@pytest.mark.skipif(not shutil.which("ptxas"), reason="there is no ptxas")
def test_cubins(tmp_path, monkeypatch):
    _, arguments = add(tmp_path)
    kernel("add", *arguments, "--emit=cubin", "-o", tmp_path / "add.cubin")
    assert (tmp_path / "add.cubin").read_bytes()[:4] == b"\x7fELF"
    assert "registers a thread, 0 bytes of them spilled" in kernel("add", *arguments, "--target=cuda", "--machine=sm_80", code=AT_FAULT).stdout
    monkeypatch.setenv("TENON_PTXAS", "")
    assert "only ptxas makes" in kernel("add", *arguments, "--emit=obj", "--target=cuda", code=AT_FAULT).stderr


def test_assemblers_that_fail(tmp_path, monkeypatch):
    """One that was named is an error, one of the PATH is a note."""
    monkeypatch.setenv("TENON_CACHE", "")
    _, arguments = add(tmp_path)
    (tmp_path / "ptxas").write_text("#!/bin/sh\necho it is too old\nexit 3\n")
    (tmp_path / "ptxas").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    done = kernel("add", *arguments, "--target=cuda", code=AT_FAULT)
    assert "ptxas: it is too old; the GPU's driver takes the PTX" in done.stderr and "registers are known with a GPU" in done.stdout
    for named, message in ((tmp_path / "ptxas", "($TENON_PTXAS): it is too old"), (tmp_path / "none", "($TENON_PTXAS): it can't be run")):
        monkeypatch.setenv("TENON_PTXAS", str(named))
        assert message in kernel("add", *arguments, "--target=cuda", code=AT_FAULT).stderr


def test_check(tmp_path):
    _, arguments = add(tmp_path)
    done = kernel("add", *arguments, "--check", "--save", tmp_path / "saved")
    assert "agrees with the interpreter" in done.stdout and done.stderr == ""
    assert (tmp_path / "saved/out.npy").exists()


def test_check_of_floats_by_atomics(tmp_path):
    done = kernel("increments", *args(counter="i32[1]"), "--grid=100", "--check", "--save", tmp_path, code=AT_FAULT)
    assert "nothing has stored it" in done.stderr
    np.save(tmp_path / "counter.npy", np.array([5], np.int32))
    kernel("increments", *args(counter=tmp_path / "counter.npy"), "--grid=100", "--check", "--save", tmp_path / "o")
    assert np.load(tmp_path / "o/counter.npy")[0] == 105


@pytest.mark.parametrize("name,arguments,line,message", [
    ("past_the_end", args(x="X", out="f32[64]") + ["--const", "BLOCK=64"], 49, "element 32 lies outside buffer %x of 32 elements"),
    ("same_element", args(out="i32[1]") + ["--grid=3"], 54, "a race"),
    ("reads_fresh", args(out="i32[1]"), 59, "nothing has stored it"),
    ("asserts", args(x="X", n=32) + ["--const", "BLOCK=32"], 66, "x is not negative"),
    ("never_released", args(lock="i32[1]") + ["--grid=2"], 90, "this loop can't end"),
    ("wraps", args(x="X", out="i32[2]", stride=65536) + ["--grid=2"], 97, "program (1, 0, 0): mul: an offset wraps in 32 bits (65536 * 65536 = 4294967296)"),
])
def test_check_reports(tmp_path, name, arguments, line, message):
    np.save(tmp_path / "x.npy", -np.ones(32, np.float32))
    arguments = [a.replace("=X", f"={tmp_path / 'x.npy'}") for a in arguments]
    stderr = kernel(name, *arguments, "--check", code=AT_FAULT, program=CHECKED).stderr
    assert f"elementwise.py:{line}:" in stderr and message in stderr


def test_assertions_hold_in_checks_only(tmp_path):
    np.save(tmp_path / "x.npy", -np.ones(32, np.float32))
    kernel("asserts", *args(x=tmp_path / "x.npy", n=32), "--const", "BLOCK=32")


def test_bench(tmp_path):
    _, arguments = add(tmp_path)
    row = json.loads(kernel("add", *arguments, "--bench", "--json", "--seconds=0.05", "--threads=1").stdout)
    assert row["kernel"] == "add" and row["bytes"] == 1200 and row["threads"] == 1
    assert 0 < row["min_ms"] <= row["median_ms"] < 100 and row["compile_ms"] > 0
    text = kernel("add", *arguments, "--bench", "--seconds=0.05").stdout
    assert "median" in text and "GB/s" in text and "compile" in text


def test_refused_kernels_say_where(tmp_path):
    stderr = kernel("not_in_the_language", *args(x="f32[1]"), code=AT_FAULT).stderr
    assert "elementwise.py:72:5: error: " in stderr
    (tmp_path / "broken.py").write_text("import triton\n\n@triton.jit\ndef f(x:\n    pass\n")
    assert "broken.py:4:" in kernel("f", file=tmp_path / "broken.py", code=AT_FAULT).stderr
    assert "cannot open" in kernel("f", file=tmp_path / "none.py", code=AT_FAULT).stderr


X = args(x="f32[4]", y="f32[4]", out="f32[4]")


@pytest.mark.parametrize("name,arguments,message", [
    ("add", X + args(n=4), "needs the constant 'BLOCK': give it by --const BLOCK=VALUE"),
    ("add", X + ["--const", "BLOCK=4"], "needs the argument 'n': give it by --arg n=VALUE"),
    ("add", args(nope=1), "has no such parameter; it has x, y, out, n, BLOCK"),
    ("add", X + args(x="f32[4]"), "it is given twice"),
    ("add", X + args(n=4, BLOCK=4), "it is a tl.constexpr; give it by --const BLOCK=4"),
    ("add", args(x="f33[4]"), "there is no type 'f33'"),
    ("add", args(x="f32[4,]"), "sizes are numbers between commas"),
    ("add", args(x="f32[-4]"), "sizes are numbers between commas"),
    ("add", args(x="f32[4]5]"), "nothing follows the ]"),
    ("add", args(x="many"), "expected FILE.npy, TYPE:FILE.npy, TYPE[SIZES] or a number"),
    ("add", X + args(n=2**70) + ["--const", "BLOCK=4"], "the number does not fit 64 bits"),
    ("add", ["--grid=0x"], "expected one to three sizes"),
    ("add", ["--grid=1,2,3,4"], "expected one to three sizes"),
    ("add", ["--grid=-1"], "expected one to three sizes"),
    ("add", ["--emit=graph"] + X + args(n=4) + ["--const", "BLOCK=4"], "expected tile, loop"),
    ("add", ["--target=tpu"], "expected cpu, cuda or cuda:N"),
    ("add", ["--target=cuda", "--machine=baseline"], "--target=cuda: machine 'baseline' is a CPU's"),
    ("add", ["--target=cpu", "--machine=sm_80"], "--target=cpu: machine 'sm_80' is a GPU's"),
    ("add", ["--target=cpu", "--emit=ptx"], "is no GPU"),
    ("add", ["--emit=ptx", "--machine=baseline"], "--emit=ptx: machine 'baseline' is no GPU"),
    ("add", ["--machine=cuda:x"], "unknown machine 'cuda:x'"),
    ("add", ["--check", "--bench"], "exclude each other"),
    ("add", ["--json"], "--json goes with --bench"),
    ("nothing", [], "no @triton.jit function 'nothing'"),
    ("add", ["--nothing"], "is no option of `tenon kernel`"),
])
def test_wrong_usage(name, arguments, message):
    assert message in kernel(name, *arguments, code=USAGE).stderr


def test_a_name_is_needed():
    done = subprocess.run([TENON, "kernel", str(KERNELS)], capture_output=True, text=True)
    assert done.returncode == USAGE and "expected FILE.py:NAME" in done.stderr


def test_wrong_files(tmp_path):
    def run(x, message):
        assert message in kernel("scale", *args(x=x, out="f32[4]", n=4, alpha=1.0), code=AT_FAULT, program=CHECKED).stderr

    np.save(tmp_path / "c.npy", np.ones(4, np.complex64))
    run(tmp_path / "c.npy", "kernels have no elements of type c64")
    np.save(tmp_path / "f.npy", np.ones(4, np.float16))
    run(f"bf16:{tmp_path / 'f.npy'}", "expected elements of type bf16 or integers of its width, found f16")
    np.save(tmp_path / "i.npy", np.ones(4, np.int32))
    run(f"bf16:{tmp_path / 'i.npy'}", "expected elements of type bf16")
    run(tmp_path / "none.npy", "cannot open")
    data = (tmp_path / "i.npy").read_bytes()
    (tmp_path / "short.npy").write_bytes(data[:-4])
    run(tmp_path / "short.npy", "expected 16 bytes of elements, found 12")
    (tmp_path / "text.npy").write_text("no array")
    run(tmp_path / "text.npy", "does not begin like one")


def test_empty_arguments(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((0, 3), np.float32))
    kernel("scale", *args(x=tmp_path / "x.npy", out="f32[0]", n=0, alpha=1.0), "--grid=0", program=CHECKED)
    kernel("scale", *args(x=tmp_path / "x.npy", out="f32[0]", n=0, alpha=1.0), "--check", program=CHECKED)


def test_damaged_cache(tmp_path, monkeypatch):
    """Code from the disk is used, a damaged file is not: results are right each time."""
    monkeypatch.setenv("TENON_CACHE", str(tmp_path / "cache"))
    expected, arguments = add(tmp_path)
    cached = []
    for damage in (None, None, lambda d: d[: len(d) // 2], lambda d: d[:100] + b"\xff" * 50 + d[150:], lambda d: b"", None):
        for path in (tmp_path / "cache").glob("*.tnk"):
            if damage:
                path.write_bytes(damage(path.read_bytes()))
        kernel("add", *arguments, "--save", tmp_path / "saved", program=CHECKED)
        np.testing.assert_array_equal(np.load(tmp_path / "saved/out.npy"), expected)
        cached.append(json.loads(kernel("add", *arguments, "--bench", "--json", "--seconds=0", program=CHECKED).stdout)["cached"])
    assert all(cached)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_help():
    done = subprocess.run([TENON, "kernel", "--help"], capture_output=True, text=True)
    assert done.returncode == RIGHT
    for option in ("--arg", "--const", "--grid", "--check", "--bench", "--emit", "--save", "--config", "--target"):
        assert option in done.stdout
