"""scikit-learn estimators: a federation behind `fit` and `predict`. They need the extra `sklearn`."""

from pgfl.errors import MissingExtra

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError:
    raise MissingExtra("The estimators need scikit-learn; install it with pip install 'pgfl[sklearn]'.") from None

from pgfl.sklearn.arguments import PrivacyAccount
from pgfl.sklearn.classifier import PGFLClassifier
from pgfl.sklearn.regressor import PGFLRegressor

__all__ = ["PGFLClassifier", "PGFLRegressor", "PrivacyAccount"]
