import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
os.environ.setdefault("TENON_CACHE", "")  # schedules that somebody tuned on this machine are not what tests expect
