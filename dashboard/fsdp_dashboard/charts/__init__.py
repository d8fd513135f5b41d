"""Values of an analysis to plain plotly figure dicts. No file is read and nothing is shown here."""
