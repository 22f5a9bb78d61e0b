"""Addresses of the shop."""

from django.urls import path

from shop.views import bills, order

urlpatterns = [path("orders", order), path("bills", bills)]
