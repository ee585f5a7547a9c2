"""Export of the epochs of a training to other tools: CSV, TensorBoard and MLflow."""
