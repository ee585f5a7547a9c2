"""Epochs of a training for other tools: CSV, TensorBoard, MLflow."""
