"""``python -m tuner`` is ``spectuner``."""

from tuner.cli import main

if __name__ == "__main__":
    main()
