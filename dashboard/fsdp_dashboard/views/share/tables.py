"""What a redaction takes out, as a table."""

from collections.abc import Sequence

import pyarrow as pa

from fsdp_dashboard.views.share.queries import Removal


def removals_table(found: Sequence[Removal]) -> pa.Table:
    """A row per kind of thing."""
    return pa.table(
        {
            "what": [one.what for one in found],
            "different": [one.count for one in found],
            "such as": [one.example for one in found],
            "becomes": [one.becomes or "(nothing)" for one in found],
        }
    )
