"""Steps and phases, and where the time of a step went."""
