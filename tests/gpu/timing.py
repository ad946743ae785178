"""Times on a GPU, of what its current stream is given."""
import statistics

import torch


def milliseconds(run, times):
    """Of one of so many runs behind each other, by events around them all."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(times):
        run()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) / times


def queued(runs, rounds, times=5):
    """Milliseconds of each run by turn; nothing is waited for in between."""
    event = lambda: torch.cuda.Event(enable_timing=True)  # noqa: E731
    marks = [[(event(), event()) for _ in runs] for _ in range(rounds)]
    for row in marks:
        for run, (start, stop) in zip(runs, row):
            start.record()
            for _ in range(times):
                run()
            stop.record()
    torch.cuda.synchronize()
    return [[start.elapsed_time(stop) / times for start, stop in row] for row in marks]


def at_power_limit(runs, rounds, warm=400, times=5):
    """The same behind so many milliseconds of them, so that the GPU is at its power limit, where ratios are steady. Medians, and of the ratios of each run to the first one."""
    queued(runs, 1, times)
    queued(runs, max(1, int(warm / (times * sum(queued(runs, 2, times)[1])))), times)
    table = queued(runs, rounds, times)
    return [statistics.median(column) for column in zip(*table)], [statistics.median(row[k] / row[0] for row in table) for k in range(len(runs))]
