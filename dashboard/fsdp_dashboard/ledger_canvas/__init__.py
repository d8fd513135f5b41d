"""The ledger of a rank drawn on a canvas in the browser."""
