"""Where measurements come from: the CPU and CUDA allocators, the device, the host."""
