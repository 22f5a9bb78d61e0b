"""Conversion of a configuration of zhihu/kids, the predecessor log collector, to one of the hub."""
