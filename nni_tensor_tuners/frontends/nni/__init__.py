"""NNI: searches as its tuners, trials that report to its experiment manager, and experiments from file to kernel."""
