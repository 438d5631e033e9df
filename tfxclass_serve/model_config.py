"""Which models are served, of TensorFlow Serving's ModelServerConfig."""

from tfxclass_serve import errors
from tfxclass_serve.folders import Source


def sources_of(config):
    """Dict of `Source` by model name, of a ModelServerConfig."""
    sources = {}
    for model in config.model_config_list.config:
        if not model.name or not model.base_path or model.name in sources:
            raise errors.invalid(
                "Each model must have a name of its own and a base_path. "
                f"Received: {errors.short(model.name)!r}, "
                f"{errors.short(model.base_path)!r}."
            )
        policy = model.model_version_policy
        versions, latest = None, max(1, policy.latest.num_versions)
        if policy.HasField("specific"):
            versions = frozenset(policy.specific.versions)
        elif policy.HasField("all"):
            latest = None
        sources[model.name] = Source(
            model.base_path, versions, dict(model.version_labels), latest
        )
    return sources
