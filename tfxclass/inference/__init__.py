"""Models for predictions: best classes, features, retain probabilities."""
