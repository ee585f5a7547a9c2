"""The epochs of a training, where other tools read them: CSV, TensorBoard, MLflow."""
