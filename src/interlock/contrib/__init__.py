"""Ties to other libraries: OpenTelemetry and Sentry."""
