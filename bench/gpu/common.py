"""What the benchmarks of a GPU have in common."""
import math


def error(out, reference):
    """Relative, by norms, in float64; infinite where a result is NaN."""
    out, reference = out.double(), reference.double()
    return math.inf if out.isnan().any() else ((out - reference).norm() / reference.norm().clamp_min(1e-30)).item()


def every(cases, wanted, one):
    """Runs one(case) for each case that is wanted; what it raises is printed and counts as wrong. The exit status: 0, all were right."""
    good = True
    for case in filter(wanted, cases):
        try:
            good &= one(case)
        except Exception as problem:
            print(f"{case.name:34} FAILED {type(problem).__name__}: {str(problem)[:600]}", flush=True)
            good = False
    return 0 if good else 1
