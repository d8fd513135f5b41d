"""Traces of torch.profiler (Kineto's Chrome JSON) to columns."""
