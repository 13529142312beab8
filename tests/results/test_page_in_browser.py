"""The run's page in a real browser: values under the cursor, zoom, and no request to anywhere."""

import pytest

from pgfl.results import report
from tests.sample_results import sample_result

pytest.importorskip
