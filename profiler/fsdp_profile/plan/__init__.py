"""What a strategy would cost: formulas, a simulated step, and a prediction calibrated by a measured run.

Every row says on which of the three it rests; none of them is a measurement. Only what runs inside the simulated
rank's own process imports torch.
"""
