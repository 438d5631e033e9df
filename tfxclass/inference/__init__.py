"""Models that answer: the best classes, features, retain probabilities."""
