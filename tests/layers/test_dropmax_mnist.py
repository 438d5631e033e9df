"""The example on tiny data of MNIST's format, and its table."""

import gzip

import numpy as np
import pytest

from examples import dropmax_mnist


@pytest.fixture
def folder(tmp_path):
    centers = np.random.default_rng(0).integers(0, 200, (10, 28, 28))
    for seed, (part, rows) in enumerate({"train": 300, "t10k": 60}.items()):
        random = np.random.default_rng(seed)
        y = np.arange(rows) % 10
        x = centers[y] + random.integers(0, 56, (rows, 28, 28))
        for name, array in (("images-idx3", x), ("labels-idx1", y)):
            head = bytes([0, 0, 8, array.ndim])
            head += np.array(array.shape, ">i4").tobytes()
            path = tmp_path / f"{part}-{name}-ubyte.gz"
            content = head + array.astype(np.uint8).tobytes()
            path.write_bytes(gzip.compress(content, 1))
    return tmp_path


@pytest.mark.slow
def test_end_to_end(folder, capsys):
    dropmax_mnist.main([str(folder), "--epochs=20"])
    output = capsys.readouterr().out
    assert "300 images to learn, 60 to test." in output
    lines = [line.split("%")[0].split() for line in output.splitlines()]
    errors = {" ".join(x[:-1]): float(x[-1]) for x in lines[3:8]}
    assert {*errors} == {
        "softmax",
        "adaptive",
        "adaptive, mean of 30 draws",
        "posterior",
        "posterior, mean of 30 draws",
    }
    assert max(errors.values()) < 20
    told = float(output.split()[-6])
    assert told == pytest.approx(
        errors["softmax"] - errors["posterior"], abs=0.02
    )
    table = [x for x in output.splitlines() if x.startswith("of a")]
    rho = np.array([line.split()[3:] for line in table], float)
    assert rho.shape == (10, 10) and np.all((rho >= 0) & (rho <= 1))
    # The digit in the picture is retained more than the others.
    assert np.diag(rho).mean() > rho.mean()
