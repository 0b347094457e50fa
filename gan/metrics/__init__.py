"""Numbers about pictures that can be compared: each comes with how it was made.

Images go through a feature network (`features`, `judge`), the features through torch-fidelity's
mathematics (`scores`), and `evaluate` ties them together and writes down the conditions.
"""

from gan.metrics.evaluate import evaluate, record
from gan.metrics.features import FeatureNetwork, length_of, open_features
from gan.metrics.scores import METRICS

__all__ = ["METRICS", "FeatureNetwork", "evaluate", "length_of", "open_features", "record"]
