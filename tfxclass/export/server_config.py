"""The configuration files of a TensorFlow Serving server."""

import itertools
import os
import re
from collections.abc import Mapping
from collections.abc import Sequence

from tfxclass.checks import as_positive_ints
from tfxclass.checks import check_positive_int
from tfxclass.paths import local_path
from tfxclass.types import Path

METRICS_PATH = "/monitoring/prometheus/metrics"
_NAME = re.compile(r"[^/:\s]+")


def server_config(
    folder: Path,
    models: Mapping[str, str],
    batch_sizes: Sequence[int] = (1, 4, 16, 64),
    versions: Mapping[str, Sequence[int] | str] | None = None,
    labels: Mapping[str, Mapping[str, int]] | None = None,
) -> None:
    """Writes configuration files for TensorFlow Serving.

    They are `models.config`, `batching.config` and `monitoring.config`, for the
    flags `--model_config_file`, `--batching_parameters_file` (with
    `--enable_batching`) and `--monitoring_config_file`. See
    `serving/README.md`. It needs `tensorflow-serving-api`.

    Args:
        folder: str, where to write. It is made if needed.
        models: dict of base paths, as the server sees them, by model name.
        batch_sizes: rising ints. Batches are padded to the next size, and no
            larger ones are made. Pass the same to `warmup_batch_sizes`.
        versions: dict by model name of lists of ints, the versions to serve (to
            roll back, or to run two at a time), or of `"all"`, all versions in
            the folder. Defaults to the latest.
        labels: dict by model name of dicts of versions by label, such as
            `{"products": {"stable": 3, "canary": 4}}`. These versions are
            served.

    Raises:
        ValueError: if an argument is out of range.
        ImportError: if the extra is not installed.
    """
    folder = local_path(folder, "folder")
    text = _models_config(
        _dict("models", models),
        _dict("versions", versions or {}),
        _dict("labels", labels or {}),
    )
    files = {
        "models.config": text,
        "batching.config": _batching(batch_sizes),
        "monitoring.config": (
            f'prometheus_config {{ enable: true path: "{METRICS_PATH}" }}\n'
        ),
    }
    os.makedirs(folder, exist_ok=True)
    for name, text in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)


def _dict(name, value):
    if not isinstance(value, Mapping):
        raise ValueError(f"`{name}` must be a dict. Received: {value!r}")
    return dict(value)


def _models_config(models, versions, labels):
    unknown = sorted({*versions, *labels} - set(models))
    if unknown or not models:
        raise ValueError(
            "`versions` and `labels` must be of `models`, at least one. "
            f"Received: {unknown} with models {sorted(models)}."
        )
    try:
        from google.protobuf import text_format
        from tensorflow_serving.config import model_server_config_pb2
    except ImportError as e:
        raise ImportError(
            "Server configurations need the protocol of TensorFlow Serving. "
            "Fix: pip install --no-deps 'tensorflow-serving-api==2.21.*'"
        ) from e
    server = model_server_config_pb2.ModelServerConfig()
    for name, path in models.items():
        if not _NAME.fullmatch(name):
            raise ValueError(
                "A model's name may not have '/', ':' or spaces. Received: "
                f"{name!r}"
            )
        of_labels = _dict("labels", labels.get(name, {}))
        wanted = versions.get(name, ())
        is_all = wanted == "all"
        wanted = () if is_all else as_positive_ints("versions", wanted)
        of_labels = {
            label: check_positive_int("labels", version)
            for label, version in of_labels.items()
        }
        wanted = {*wanted, *of_labels.values()}
        model = server.model_config_list.config.add(
            name=name, base_path=os.fspath(path), model_platform="tensorflow"
        )
        if is_all:
            model.model_version_policy.all.SetInParent()
        elif wanted:
            model.model_version_policy.specific.versions.extend(sorted(wanted))
        model.version_labels.update(of_labels)
    return text_format.MessageToString(server)


def _batching(sizes):
    sizes = as_positive_ints("batch_sizes", sizes)
    if not sizes or any(a >= b for a, b in itertools.pairwise(sizes)):
        raise ValueError(
            f"`batch_sizes` must be rising, at least one. Received: {sizes}"
        )
    # The server refuses a last allowed size other than the greatest batch.
    lines = [
        f"max_batch_size {{ value: {sizes[-1]} }}",
        "batch_timeout_micros { value: 1000 }",
        "max_enqueued_batches { value: 100 }",
        "num_batch_threads { value: 4 }",
        *(f"allowed_batch_sizes: {size}" for size in sizes),
    ]
    return "\n".join(lines) + "\n"
