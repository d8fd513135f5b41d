"""Files to tables: raw captures, Kineto traces and memory snapshots; tolerant, safe, never torch."""
