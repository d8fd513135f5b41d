"""Questions to a run. Values come back as frozen dataclasses and tables; nothing is printed, torch is never needed."""
