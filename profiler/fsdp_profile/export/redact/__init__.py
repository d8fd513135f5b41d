"""Remove from a run what identifies people, machines and projects."""
