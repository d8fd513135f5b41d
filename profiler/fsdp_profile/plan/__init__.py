"""Predict what a strategy costs: formulas, a simulated step, and a prediction calibrated by a measured run.

Every row names which of the three it is based on; none of them is a measurement. Only what runs inside the simulated
rank's own process imports torch.
"""
