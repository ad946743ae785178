"""Times on a GPU, of what its default stream is given."""
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
