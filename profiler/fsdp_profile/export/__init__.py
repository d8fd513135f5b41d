"""What leaves this machine: bundles, HTML, traces, tables, pictures, and the redaction before any of them."""
