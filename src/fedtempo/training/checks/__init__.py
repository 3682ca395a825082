"""Checks before training: settings, model, metrics, devices and compressors are tried before the first round."""
