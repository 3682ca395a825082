"""A FedTempo experiment as a Flower app: `flwr run . --stream` in the folder above."""
