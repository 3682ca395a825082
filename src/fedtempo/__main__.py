"""`python -m fedtempo` is `fedtempo`."""

from fedtempo.cli import main

if __name__ == "__main__":
    main()
