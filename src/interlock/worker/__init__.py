"""Runs the handlers of an app: leasing, pools, settling and shutdown."""
