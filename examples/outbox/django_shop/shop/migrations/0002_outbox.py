"""The tables of the outbox: the SQL that `interlock outbox migrate --sql` prints."""

from django.db import migrations

from interlock.outbox.postgres.schema import statements


class Migration(migrations.Migration):
    """Creates the tables; after an upgrade, a further migration brings them to its version."""

    dependencies = [("shop", "0001_initial")]
    operations = [
        # Django has its own transaction around them.
        migrations.RunSQL(statements("interlock"), "drop schema interlock cascade")
    ]
