"""What stands on a page that streamlit's own test harness has run."""

import json

MIB = 1 << 20


def said(app):
    return "\n".join(block.value for block in app.markdown)


def figure(app, number=0):
    return json.loads(app.get("plotly_chart")[number].proto.spec)


def trace(drawn, name):
    return next(t for t in drawn["data"] if t["name"] == name)


def table(app, number=0):
    return app.dataframe[number].value
