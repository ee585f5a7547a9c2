"""Speed of generating, reading and training, against floors that are measured in the same run."""
