"""The example on small data: trained, served, grown, served again."""

import pytest

from examples import growing_catalogue


@pytest.mark.slow
def test_new_products_are_found_and_no_request_fails(tmp_path):
    found = growing_catalogue.main(
        num_old=300, num_new=100, rows=20, epochs=12, folder=tmp_path, verbose=0
    )
    # Three rows of 300 may be lost.
    assert found["old"] > 0.95
    assert found["old, grown"] > found["old"] - 0.01
    # Chance is 0.25 %.
    assert found["new, grown"] > 0.6 and found["new, served"] > 0.6
    assert found["failed"] == 0 and found["answered"] > 0
    assert found["new, trained on"] > 0.6
