"""The example on small data: slim, recovered, fine-tuned, exported."""

import os

import pytest

from examples import projected_softmax


@pytest.mark.slow
def test_stages_find_most_classes_and_the_full_model_is_exported(tmp_path):
    found = projected_softmax.main(
        num_classes=150, dim=128, rows=10, epochs=20, folder=tmp_path, verbose=0
    )
    assert list(found) == ["slim", "recovered", "fine-tuned"]
    # Chance is 0.7 %.
    assert found["slim"] > 0.6 and found["fine-tuned"] > 0.6
    assert found["recovered"] > 0.95 * found["slim"]
    assert os.path.exists(tmp_path / "1" / "saved_model.pb")
