"""The tables of the shop."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates orders and bills."""

    initial = True
    operations = [
        migrations.CreateModel(
            "Purchase",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("customer", models.TextField()),
                ("cents", models.IntegerField()),
            ],
        ),
        migrations.CreateModel(
            "Bill",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("cents", models.IntegerField()),
                ("purchase", models.OneToOneField("shop.Purchase", models.CASCADE)),
            ],
        ),
    ]
