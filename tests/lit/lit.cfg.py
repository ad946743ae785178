# IR tests: text in, `tenon opt` or `tenon compile`, FileCheck on what comes out.
# Run against a build: `lit build/debug/tests/lit`; straight on this folder, the debug build is used.
import os
import shutil

import lit.formats

here = os.path.dirname(__file__)
build = getattr(config, "tenon_build", os.path.join(here, "..", "..", "build", "debug"))

config.name = "tenon"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".tn"]
config.excludes = ["Inputs"]
config.test_source_root = here
config.test_exec_root = os.path.join(build, "tests", "lit")

filecheck = shutil.which("FileCheck-19") or "/usr/lib/llvm-19/bin/FileCheck"
config.substitutions.append(("%tenon", os.path.join(build, "tenon")))
config.substitutions.append(("FileCheck", filecheck))
ptxas = shutil.which("ptxas")
if ptxas:  # `%if ptxas %{ … %}` around what needs it
    config.available_features.add("ptxas")
    config.substitutions.append(("%ptxas", ptxas + " -v -o /dev/null"))
config.environment["TENON_CACHE"] = ""  # schedules that somebody tuned on this machine are not what tests expect
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
