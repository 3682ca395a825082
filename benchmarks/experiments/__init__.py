"""Whole experiments: training, scoring of every user and the results table, from process start to the end."""
