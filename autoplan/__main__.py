"""`python -m autoplan` is the command `autoplan`."""

from autoplan.cli.main import main

if __name__ == "__main__":
    main()
