"""Classes that come and go: `add_classes`, `remove_classes`."""
