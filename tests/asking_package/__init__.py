"""Add an op package whose kernels ask for a feature: the operator com.example.Tenfold."""

__version__ = "1.0"
