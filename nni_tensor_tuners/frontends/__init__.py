"""Front ends: what drives a study, and where its trials are measured."""
