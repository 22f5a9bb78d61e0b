"""The app for workers: `interlock worker worker:tasks`."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django.setup()

from shop.tasks import tasks  # noqa: E402

__all__ = ["tasks"]
