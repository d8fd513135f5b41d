"""Answers of the analysis as what people read, once: tables with labelled columns and units, sentences, facts.

Everything here is a frozen value without colours, widths or escapes. The renderers (terminal, HTML, Markdown, the
dashboard) format and escape these values and compute nothing, so the same fact reads the same everywhere.
"""
