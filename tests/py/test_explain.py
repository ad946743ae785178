"""`tenon explain`: kernel counts of well-known blocks, the JSON's members, reasons, hostile names, the page in a browser."""
import html.parser
import json
import os
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import blocks

TENON = os.environ.get("TENON", "build/release/tenon")
CHECKED = os.environ.get("TENON_CHECKED", TENON)


def tenon(*arguments, program=TENON, code=0):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def explain(*arguments, **options):
    return json.loads(tenon("explain", *arguments, "--json", **options))


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    b = blocks.Block()
    return b.save(tmp_path_factory.mktemp("mlp") / "mlp.onnx", ["b", 64], blocks.gelu_mlp(b, "x", 64, 128))


# ---- how many kernels ---------------------------------------------------------------------------------------------------

# So many rows that a GPU needs no sums in parts to be busy.
ROWS, SYMBOLS = [64, 128, 96], ["b", "s", 96]
COUNTS = {
    "layer_norm": (lambda b: blocks.layer_norm(b, "x", 96), 1),
    "layer_norm_operator": (lambda b: blocks.layer_norm_operator(b, "x", 96), 1),
    "softmax": (lambda b: b.op("Softmax", "x", axis=-1), 1),
    "gelu_mlp": (lambda b: blocks.gelu_mlp(b, "x", 96, 384), 2),
    "swiglu_mlp": (lambda b: blocks.swiglu_mlp(b, "x", 96, 256), 2),
    "attention_block": (lambda b: blocks.attention_block(b, "x", 96, 6), 4),
}


def count_kernels(path, most, target, *options):
    options = ["--no-run", "--target", target, *options]
    text = tenon("explain", path, *options)
    count = int(text.splitlines()[1].split()[0])
    assert count <= most, text
    assert count == len(check_form(explain(path, *options))["kernels"])


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("shape", [ROWS, SYMBOLS], ids=["static", "symbolic"])
@pytest.mark.parametrize("block", COUNTS)
def test_number_of_kernels(block, shape, target, tmp_path):
    build, most = COUNTS[block]
    b = blocks.Block()
    path = b.save(tmp_path / "block.onnx", shape, build(b))
    count_kernels(path, most, target, *(["--size", "s=64"] if "s" in shape else []))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("batch", [16, "b"], ids=["static", "symbolic"])
def test_number_of_kernels_of_a_bottleneck(batch, target, tmp_path):
    b = blocks.Block()
    path = b.save(tmp_path / "block.onnx", [batch, 64, 28, 28], blocks.bottleneck(b, "x", 64, 16))
    count_kernels(path, 4, target, "--size", "b=16") if batch == "b" else count_kernels(path, 4, target)


NORMS = {
    "group_norm": lambda b: blocks.group_norm(b, "x", 96, 32, (28, 28)),
    "exported_group_norm": lambda b: blocks.exported_group_norm(b, "x", 96, 32),
    "instance_norm": lambda b: blocks.instance_norm(b, "x", 96, (28, 28)),
    "activated": lambda b: blocks.gelu(b, blocks.group_norm(b, "x", 96, 32, (28, 28))),
}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("batch", [16, "b"], ids=["static", "symbolic"])
@pytest.mark.parametrize("norm", NORMS)
def test_norms_of_channels_are_one_kernel(norm, batch, target, tmp_path):
    b = blocks.Block()
    path = b.save(tmp_path / "norm.onnx", [batch, 96, 28, 28], NORMS[norm](b))
    count_kernels(path, 1, target, *(["--size", "b=16"] if batch == "b" else []))


@pytest.mark.parametrize("rows", [1, "s"], ids=["static", "symbolic"])
@pytest.mark.parametrize("block", [0, 64])
def test_weights_stay_as_narrow_as_they_are_stored(block, rows, tmp_path):
    b = blocks.Block()
    path = b.save(tmp_path / "linear.onnx", [rows, 512], blocks.dequantised_linear(b, "x", 512, 768, block), [rows, 768])
    r = check_form(explain(path, "--no-run"))
    assert len(r["kernels"]) == 1 and r["memory"]["weights_packed"] == 512 * 768
    few = 768 * (512 // block if block else 1)
    assert r["kernels"][0]["bytes"] == 512 * 768 + 4 * (few + 512 + 768)


# ---- the object ------------------------------------------------------------------------------------------------------------

def check_form(r):
    """What holds of every report."""
    assert r["version"] == 1
    names = {n["name"] for n in r["graph"]["nodes"]}
    for k in r["kernels"]:
        assert k["nodes"] and k["ops"]
        assert k["bytes"] is None or k["bytes"] == k["bytes_read"] + k["bytes_written"] > 0 and k["flops"] >= 0
    held = [set(k["nodes"]) for k in r["kernels"]]
    for e in r["unfused"]:
        assert e["reason"] and e["from"]["node"] and e["to"]["kernel"] is not None
        assert e["from"]["kernel"] is None or e["from"]["node"] in held[e["from"]["kernel"]] | names
        assert e["to"]["node"] in held[e["to"]["kernel"]]
    explained = {(e["from"]["kernel"], e["to"]["kernel"]) for e in r["unfused"]}
    assert {tuple(pair) for pair in r["graph"]["kernel_edges"]} == {pair for pair in explained if pair[0] is not None}
    m = r["memory"]
    assert m["bound"] <= m["peak"]
    for i, buffer in enumerate(m["buffers"]):
        assert 0 <= buffer["first"] <= buffer["last"] < m["positions"] and buffer["offset"] + buffer["bytes"] <= m["peak"]
        for other in m["buffers"][:i]: # what lives at one time lies apart
            if buffer["same_as"] is None and other["same_as"] is None and buffer["first"] <= other["last"] and other["first"] <= buffer["last"]:
                assert buffer["offset"] + buffer["bytes"] <= other["offset"] or other["offset"] + other["bytes"] <= buffer["offset"]
    totals = r["totals"]
    assert totals["kernels"] == len(r["kernels"])
    return r


def test_bytes_and_operations(mlp):
    r = check_form(explain(mlp, "--size", "b=10", "--no-run"))
    first, second = r["kernels"]
    assert r["sizes"] == [{"name": "b", "size": 10}] and r["totals"]["ms"] is None and r["no_times"]
    assert first["bytes_written"] == 10 * 128 * 4 and first["bytes_read"] == (10 * 64 + 64 * 128 + 128) * 4
    assert second["bytes_read"] == (10 * 128 + 128 * 64 + 64) * 4
    assert second["flops"] == 2 * 10 * 128 * 64 + 10 * 64 # the product, and the bias
    assert first["ms"] is None and first["limit_ms"] > 0 and first["limited_by"] in ("memory", "arithmetic")
    assert r["totals"]["bytes_between"] == 2 * 10 * 128 * 4 == 2 * r["memory"]["bound"]
    assert r["machine"]["rates"] == "measured" and r["machine"]["flops_per_s"]["f32"] > 1e8


def test_times(mlp):
    r = check_form(explain(mlp, "--size", "b=10", "--seconds", "0.05"))
    assert r["no_times"] is None and r["totals"]["runs"] >= 1
    assert all(k["ms"] > 0 and k["launches"] == 1 for k in r["kernels"])
    assert r["totals"]["ms"] == pytest.approx(sum(k["ms"] for k in r["kernels"]), rel=1e-3)


def test_a_gpu_that_is_not_there(mlp):
    r = check_form(explain(mlp, "--target=cuda", "--size", "b=128"))
    assert "GPU" in r["no_times"] and r["machine"]["rates"] == "data sheet" and r["machine"]["device"] == 0
    assert all(k["ms"] is None and k["limit_ms"] > 0 for k in r["kernels"])


def test_every_edge_has_its_reason(mlp):
    r = check_form(explain(mlp, "--no-run"))
    edge, = r["unfused"]
    assert edge["from"]["kernel"] == 0 and edge["to"]["kernel"] == 1 and edge["to"]["node"].startswith("/MatMul") and "product" in edge["reason"]
    assert edge["bytes"] == 128 * 4
    apart = check_form(explain(mlp, "--no-run", "--passes=-fuse"))
    assert len(apart["kernels"]) > 6 and len(apart["unfused"]) >= len(apart["kernels"]) - 1
    assert {e["reason"] for e in apart["unfused"]} == {"fusion is switched off"}


def test_a_product_in_parts(tmp_path):
    b = blocks.Block()
    r = check_form(explain(b.save(tmp_path / "p.onnx", [8, 4096], blocks.linear(b, "x", 4096, 64), [8, 64]), "--no-run", "--target=cuda"))
    assert len(r["kernels"]) == 2
    assert [e["reason"] for e in r["unfused"]] == ["the sum is computed in parts, by more programs at once; this kernel adds up the parts"]
    assert r["kernels"][0]["flops"] >= 2 * 8 * 4096 * 64 > r["kernels"][1]["flops"]


def test_steps_of_other_kinds(tmp_path):
    """Concatenations in place, sorts, loops: each edge between kernels is explained, each kernel has a node."""
    f32, i64 = TensorProto.FLOAT, TensorProto.INT64
    body = helper.make_graph([helper.make_node("MatMul", ["state", "state"], ["product"], name="/loop/MatMul"), helper.make_node("Relu", ["product"], ["next"], name="/loop/Relu"),
                              helper.make_node("Identity", ["cond"], ["again"], name="/loop/Identity")], "body",
                             [helper.make_tensor_value_info("i", i64, []), helper.make_tensor_value_info("cond", TensorProto.BOOL, []), helper.make_tensor_value_info("state", f32, [8, 8])],
                             [helper.make_tensor_value_info("again", TensorProto.BOOL, []), helper.make_tensor_value_info("next", f32, [8, 8])])
    b = blocks.Block()
    parts = [b.op("Softmax", "x", axis=a) for a in (0, 1)] + [b.op("MatMul", "x", "x")]
    joined = b.op("Concat", *parts, axis=0)
    k = b.constant(np.array([8], np.int64))
    b.nodes.append(helper.make_node("TopK", [joined, k], ["top", "where"], name="/TopK", axis=0))
    trips = b.op("Add", b.op("Mul", b.op("ReduceSum", "x", keepdims=0), b.number(0)), b.number(3)) # 3, which only a run knows
    trips = b.op("Cast", trips, to=i64)
    b.nodes.append(helper.make_node("Loop", [trips, "", "top"], ["looped"], name="/Loop", body=body))
    path = b.save(tmp_path / "steps.onnx", [8, 8], b.op("Add", "looped", "top"))
    for program in (TENON, CHECKED):
        r = check_form(explain(path, "--seconds", "0", program=program))
        assert any("sort" in k["ops"] for k in r["kernels"])
        loop = [k for k in r["kernels"] if "/loop/MatMul" in k["nodes"]]
        assert loop and loop[0]["launches"] == 3
        assert [s["name"] for s in r["other_steps"]].count("while") == 1


def test_sizes_known_only_in_a_run(tmp_path):
    b = blocks.Block()
    found = b.op("Cast", b.op("NonZero", "x"), to=TensorProto.FLOAT)
    path = b.save(tmp_path / "nonzero.onnx", ["n"], b.op("Softmax", found, axis=-1), [1, "m"])
    before = check_form(explain(path, "--no-run", "--size", "n=9"))
    assert not before["memory"]["complete"] and before["kernels"][-1]["bytes"] is None and before["kernels"][0]["bytes"] > 0
    assert check_form(explain(path, "--seconds=0", "--size", "n=9"))["memory"]["complete"]


def test_text(mlp):
    text = tenon("explain", mlp, "--no-run", "--size", "b=10")
    assert "2 kernels" in text and "not fused: 1 edge" in text and "/MatMul" in text and "peak" in text


@pytest.mark.parametrize("name", ["-o report.txt", "--json=3"])
def test_wrong_usage(mlp, name):
    tenon("explain", mlp, *name.split(), code=2)


# ---- names as bad as they come ---------------------------------------------------------------------------------------------

HOSTILE = ["</script><script>document.title='broken'</script>", "<!-- <script>", "\"quoted\" 'name' \\ &amp;", "smile 😀 é", "\x1b[31mred\x07\r\n", "a" * 5000, "@REPORT@", "]]>"]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    b, x = blocks.Block(), "x"
    for name in HOSTILE:
        x = b.op("Softmax", b.op("MatMul", x, b.weight(16, 16)), axis=-1, name=name)
    path = b.save(tmp_path_factory.mktemp("hostile") / "hostile.onnx", ["<b>", 16], x)
    model = onnx.load(path)
    data = model.SerializeToString().replace(b"smile \xf0\x9f\x98\x80", b"smile \xf0\x9f\x98\xff") # not UTF-8
    broken = path.with_name("not_utf8.onnx")
    broken.write_bytes(data)
    return path, broken


def test_hostile_names(hostile):
    path, broken = hostile
    for program in (TENON, CHECKED):
        r = check_form(explain(path, "--no-run", program=program))
        seen = {n["name"] for n in r["graph"]["nodes"]}
        assert {n for n in HOSTILE if n.isprintable()} <= seen
        text = tenon("explain", path, "--no-run", program=program)
        assert "\x1b" not in text and "\x07" not in text and "\r" not in text
        explain(broken, "--no-run", program=program)


# ---- the page, in a browser ---------------------------------------------------------------------------------------------------

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def show(path, tmp_path):
    """The page's elements as the browser has them when its script has run, without a network."""
    if not BROWSER:
        pytest.skip("no browser: install Debian's package chromium")
    done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={tmp_path / 'profile'}",
                           "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=100)
    assert "Uncaught" not in done.stderr, done.stderr
    page = Page()
    page.feed(done.stdout)
    assert page.body.get("data-shown") == "all", done.stderr
    return page


class Page(html.parser.HTMLParser):
    """Text of table rows by the table's id, how many shapes there are of each kind in a picture, by its label, and what refers to elsewhere."""

    def __init__(self):
        super().__init__()
        self.rows, self.shapes, self.links, self.titles, self.body, self.title, self.table, self.svg, self.tag = {}, {}, [], [], {}, "", None, None, None

    def handle_starttag(self, tag, attributes):
        attributes, self.tag = dict(attributes), tag
        self.links += [v for k, v in attributes.items() if k in ("src", "href", "action")]
        self.body = attributes if tag == "body" else self.body
        self.table = attributes.get("id") if tag == "table" else self.table
        self.svg = attributes.get("aria-label") if tag == "svg" else self.svg
        if tag == "tr" and self.table:
            self.rows.setdefault(self.table, []).append([])
        if tag == "td":
            self.rows[self.table][-1].append("")
        if self.svg:
            shapes = self.shapes.setdefault(self.svg, {})
            shapes[tag] = shapes.get(tag, 0) + 1

    def handle_endtag(self, tag):
        self.tag = None
        self.table = None if tag == "table" else self.table
        self.svg = None if tag == "svg" else self.svg

    def handle_data(self, data):
        if self.tag == "td":
            self.rows[self.table][-1][-1] += data
        elif self.tag == "title" and not self.svg:
            self.title += data


def test_page(mlp, tmp_path):
    text = tenon("explain", mlp, "--size", "b=10", "--no-run", "-o", tmp_path / "report.html")
    assert "2 kernels" in text
    page, r = show(tmp_path / "report.html", tmp_path), explain(mlp, "--size", "b=10", "--no-run")
    assert not page.links and "mlp.onnx" in page.title
    kernels = page.rows["kernel-table"][1:]
    assert [row[0] for row in kernels] == ["0", "1"] and kernels[0][-1] == ", ".join(r["kernels"][0]["nodes"])
    edge, = page.rows["unfused-table"][1:]
    assert r["unfused"][0]["reason"] in edge and edge[0].endswith("kernel 0)")
    assert page.shapes["roofline"]["circle"] == 2 and page.shapes["memory plan"]["rect"] == 1
    assert page.shapes["graph before"]["rect"] == len(r["graph"]["nodes"]) and page.shapes["graph after"]["rect"] == 2 and page.shapes["graph after"]["path"] == 1


def test_page_of_hostile_names(hostile, tmp_path):
    tenon("explain", hostile[0], "--no-run", "-o", tmp_path / "report.html")
    page = show(tmp_path / "report.html", tmp_path)
    assert "broken" not in page.title
    nodes = " ".join(row[-1] for row in page.rows["kernel-table"][1:])
    assert all(name in nodes for name in HOSTILE if name.isprintable() and len(name) < 100)


def test_page_of_many_nodes(tmp_path):
    b, x = blocks.Block(), "x"
    for i in range(2500): # pairs that don't fuse
        x = b.op("Relu", b.op("MatMul", x, "x")) if i % 2 else b.op("Softmax", x, axis=i % 4 // 2)
    path = b.save(tmp_path / "many.onnx", [4, 4], x)
    tenon("explain", path, "--no-run", "-o", tmp_path / "report.html")
    page, r = show(tmp_path / "report.html", tmp_path), json.loads(tenon("explain", path, "--no-run", "--json"))
    assert len(r["kernels"]) > 1000 and len(page.rows["kernel-table"]) == 301
    assert page.shapes["memory plan"]["rect"] > 100 and "graph before" not in page.shapes


def test_object_in_a_file(mlp, tmp_path):
    tenon("explain", mlp, "--no-run", "-o", tmp_path / "report.json")
    assert check_form(json.loads((tmp_path / "report.json").read_text()))["totals"]["kernels"] == 2
