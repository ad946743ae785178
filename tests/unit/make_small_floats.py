#!/usr/bin/env python3
"""Writes small_floats.inc: values that a float holds exactly, with their codes in the narrow formats, as NumPy and
ml_dtypes round them. Run it from this folder after a change of the choice of values."""
import random

import ml_dtypes
import numpy

FORMATS = [(numpy.float16, numpy.uint16), (ml_dtypes.bfloat16, numpy.uint16), (ml_dtypes.float8_e4m3fn, numpy.uint8),
           (ml_dtypes.float8_e5m2, numpy.uint8)]


def values():
    yield from (0.0, 1.0, 0.1, 1 / 3, 448, 463.9, 464, 464.1, 480, 57344, 61439, 61440, 65504, 65519.9, 65520, 1e30, 3.4e38, 1e-45)
    for least, mantissa in ((-14, 10), (-126, 7), (-6, 3), (-14, 2)):
        unit = 2.0 ** (least - mantissa)  # the least denormal, its halves and what lies round the least normal
        yield from (unit * k for k in (0.25, 0.5, 0.50001, 0.75, 1, 1.5, 2, 2.5, 3.5))
        yield from (2.0**least + unit * k for k in (-1, -0.5, 0, 0.5, 1.5))
    rng = random.Random(1)
    for _ in range(150):
        yield rng.uniform(1, 2) * 2.0 ** rng.randint(-30, 20)
    for _ in range(60):  # ties and their neighbours
        yield (rng.randint(8, 4096) + rng.choice((0.5, 0.5, 0.5009765625))) * 2.0 ** rng.randint(-12, 5)


with open("small_floats.inc", "w") as out:
    out.write("/* Written by make_small_floats.py: value, codes in f16, bf16, f8e4m3fn, f8e5m2. */\n")
    for value in dict.fromkeys(float(numpy.float32(v)) for v in values()):
        with numpy.errstate(over="ignore"):
            codes = [int(numpy.array([value], numpy.float32).astype(f).view(u)[0]) for f, u in FORMATS]
        out.write("{%s, {%s}},\n" % (value.hex(), ", ".join("0x%x" % c for c in codes)))
