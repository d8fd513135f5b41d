"""One step of a script with fake tensors, recorded like any run."""
