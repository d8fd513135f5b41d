"""Holistic Trace Analysis (HTA) beside our own numbers."""
