"""Soon."""

ROUTES = ()
