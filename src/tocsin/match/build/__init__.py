"""Building immutable segments: cost.py chooses access paths, assemble.py lays conjunctions out."""
