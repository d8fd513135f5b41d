"""Holistic Trace Analysis (HTA) beside the numbers of this profiler."""
