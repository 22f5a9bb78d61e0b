"""The process and its machine: forks, frames, signals, gevent, systemd; limits. Imports nothing."""
