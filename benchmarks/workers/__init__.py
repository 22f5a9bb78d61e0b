"""Workers that run tasks: ours, and those that a program in Python or JavaScript would use today.

Each has a file under `peers`, which is its program in full, and an environment of its own with the
versions in `pins`; `race` lets one enqueue tasks and work them off.
"""
