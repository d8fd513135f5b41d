"""How capture gets into a rank's process, and how it leaves."""
