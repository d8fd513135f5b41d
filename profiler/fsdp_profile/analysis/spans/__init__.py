"""What was recorded as spans of time: phases, units, and sets of intervals."""
