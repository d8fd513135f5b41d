"""The pages. Each one picks, asks `data`, draws; it does no maths and builds no frames."""
