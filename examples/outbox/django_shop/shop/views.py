"""Views of the shop."""

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from shop.models import Bill, Purchase
from shop.tasks import bill, outbox


@csrf_exempt
def order(request: HttpRequest) -> JsonResponse:
    """Stores an order, and sends its bill if, and only if, the order is stored."""
    customer, cents = request.GET["customer"], int(request.GET["cents"])
    with transaction.atomic():
        purchase = Purchase.objects.create(customer=customer, cents=cents)
        outbox.send(connection, bill, customer, purchase.id)
        if cents <= 0:
            # Takes back the order and the call.
            transaction.set_rollback(True)
    return JsonResponse({"stored": cents > 0}, status=200 if cents > 0 else 422)


def bills(_request: HttpRequest) -> JsonResponse:
    """Returns the amounts of all bills."""
    return JsonResponse(list(Bill.objects.order_by("purchase_id").values_list("cents", flat=True)),
                        safe=False)  # fmt: skip
