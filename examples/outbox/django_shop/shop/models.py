"""Orders and bills."""

from django.db import models


class Purchase(models.Model):
    """An order of a customer."""

    customer = models.TextField()
    cents = models.IntegerField()


class Bill(models.Model):
    """The bill of an order."""

    purchase = models.OneToOneField(Purchase, on_delete=models.CASCADE)
    cents = models.IntegerField()
