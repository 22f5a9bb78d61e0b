"""The configuration of zhihu/kids, the log collector before the hub, as one of the hub's."""
