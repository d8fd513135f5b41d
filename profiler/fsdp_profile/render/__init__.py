"""Values on a screen or in a file: terminal, HTML, Markdown, SVG."""
