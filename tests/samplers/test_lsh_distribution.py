"""The example on small data: training turns the sampling distribution."""

from examples import lsh_distribution


def test_samples_gather_on_few_classes_as_the_weights_move(tmp_path):
    path = tmp_path / "figure.png"
    shares = lsh_distribution.main(
        num_classes=300, epochs=(1, 3), rows=6000, draws=20, path=path
    )
    fresh, first, last = shares.values()
    # The most sampled 1 % are three classes here, so the shares are rough.
    assert min(first, last) > 1.15 * fresh
    assert path.stat().st_size > 1000
