"""Answers of the dashboard's API, and the stream of live figures."""
