"""`python -m fedtempo` is `fedtempo`."""

from fedtempo_command import main

if __name__ == "__main__":
    main()
