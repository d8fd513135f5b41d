"""Spans of time as recorded: phases and units, and sets of intervals."""
