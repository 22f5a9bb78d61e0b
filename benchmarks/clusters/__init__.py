"""The state table across machines: what its rows measure, by what they measure."""
