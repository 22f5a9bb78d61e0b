"""The peers, a program each: its application, its task, how it enqueues, and its worker.

Each is set up for no-op tasks: no results are kept, and concurrency is what was quickest here.
"""
