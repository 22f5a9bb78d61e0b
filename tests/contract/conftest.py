"""Shows what an assertion of the suite compared, as for a test of our own."""

import pytest

pytest.register_assert_rewrite("interlock.testing.contract")
