"""python -m chita."""

from chita.cli import main

if __name__ == "__main__":
    main()
