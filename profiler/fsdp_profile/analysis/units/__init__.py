"""The units of one rank: what each holds, and when it was gathered."""
