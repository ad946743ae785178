#!/usr/bin/env python3
"""Runs every test of Tenon and ends with one line, `N passed, M failed`; exit status 1 if anything failed.

  --build DIR    the build whose unit tests, IR tests and `tenon` are run (a sanitizer build, as a rule)
  --release DIR  the build whose `tenon` the Python tests run; default: --build
  --only PART    source, unit, lit or python; may be given more than once

Python tests find the programs in the environment: TENON (release) and TENON_CHECKED (the --build one)."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRATCH = tempfile.TemporaryDirectory()


def scratch(name):
    return pathlib.Path(SCRATCH.name, name)


def run(command, env=None):
    print("+", " ".join(map(str, command)), flush=True)
    return subprocess.run(list(map(str, command)), cwd=ROOT, env=env).returncode


def junit_counts(path):
    """(passed, failed) of a JUnit file; skipped cases count as neither."""
    passed = failed = 0
    for case in xml.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is None:
            passed += 1
    return passed, failed


def source(args):
    checks = [ROOT / f"scripts/check-{what}.py" for what in ("layering", "op-names")]
    bad = sum(run([sys.executable, check]) != 0 for check in checks)
    return len(checks) - bad, bad


def ctest(build, jobs, *more):
    report = scratch("ctest.xml")
    status = run(["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", f"-j{jobs}", "--test-output-size-passed", 1 << 20,
                  "--test-output-size-failed", 1 << 20, "--output-junit", report, *more])
    passed = failed = 0
    for case in xml.parse(report).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        inner = len(re.findall(r"^\[       OK \]", output, re.MULTILINE))
        passed += inner
        if case.get("status") == "run":
            passed += inner == 0
        else:
            failed += max(1, len(re.findall(r"^\[  FAILED  \] \w+$", output, re.MULTILINE)) // 2)
    return passed, failed or int(status != 0)


def unit(args):
    """What takes too long under a sanitizer (the label `shares`) runs in full on the release build."""
    runs = [ctest(args.build, args.jobs)]
    if args.release != args.build:
        runs.append(ctest(args.release, args.jobs, "-L", "shares"))
    return tuple(map(sum, zip(*runs)))


def lit(args):
    report = scratch("lit.json")
    folder = args.build / "tests/lit"
    run([pathlib.Path(sys.executable).with_name("lit"), "-q", f"-j{args.jobs}", "-o", report, folder])
    codes = [test["code"] for test in json.loads(report.read_text())["tests"]]
    good = sum(code in ("PASS", "XFAIL", "FLAKYPASS") for code in codes)
    return good, len(codes) - good - sum(code in ("UNSUPPORTED", "SKIPPED") for code in codes)


def python(args):
    report = scratch("pytest.xml")
    env = dict(os.environ, TENON=str(args.release / "tenon"), TENON_CHECKED=str(args.build / "tenon"),
               TENON_LIBRARY=str(args.release / "libtenon.so"))
    status = run([sys.executable, "-m", "pytest", "-q", "-n", args.jobs, "--junitxml", report, "tests"], env)
    if not report.exists():
        return 0, 1
    passed, failed = junit_counts(report)
    return passed, failed or int(status not in (0, 5))


PARTS = {"source": source, "unit": unit, "lit": lit, "python": python}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--release", type=pathlib.Path)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    os.environ.setdefault("TENON_CACHE", "")  # schedules that somebody tuned on this machine are not what tests expect
    args.build = args.build.resolve()
    args.release = (args.release or args.build).resolve()
    passed = failed = 0
    for name in args.only or PARTS:
        start = time.monotonic()
        good, bad = PARTS[name](args)
        bad = bad or int(not good)  # a part without tests has lost them
        print(f"{name}: {good} passed, {bad} failed, {time.monotonic() - start:.1f} s", flush=True)
        passed += good
        failed += bad
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
