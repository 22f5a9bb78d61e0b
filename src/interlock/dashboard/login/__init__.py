"""Users of the dashboard: who they are, their sessions, and the checks of each request."""
