"""Hooks on what every training script does, whatever its wrapper."""
