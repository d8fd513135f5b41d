"""The memory of one rank: its ledger, its peaks, and what they are made of."""
