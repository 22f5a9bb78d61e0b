"""Users of the dashboard: their sessions, and each one's access to the engine."""
