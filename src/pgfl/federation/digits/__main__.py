"""`python -m pgfl.federation.digits ORIGINALS OUT` makes the file of digits that the package carries."""

import sys

from pgfl.errors import PgflError
from pgfl.federation.digits import build_embedded


def main(arguments: list[str]) -> int:
    """Build the file and print the checksum of its content; 2 if it cannot be done."""
    if len(arguments) != 2:
        print("Usage: python -m pgfl.federation.digits ORIGINALS OUT", file=sys.stderr)
        return 2
    try:
        print(build_embedded(*arguments))
    except PgflError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
