"""The dashboard of fsdp-profile: where the memory of a run goes, and what sharding buys, on one screen."""
