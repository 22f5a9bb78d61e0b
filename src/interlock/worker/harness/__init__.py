"""Tests of an app: handlers run immediately, on an engine in memory."""
