"""Memory snapshots of the CUDA caching allocator to tables."""
