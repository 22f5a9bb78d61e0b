"""Runs the handlers of an app: leases, pools, settling, and how it ends."""
