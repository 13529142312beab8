"""One attack of the audit: `python -m mutants.attack_one "huber/device" 500` ends with 3 if the claim is not kept."""

import sys

from pgfl.lab.audit.cases import cases, deployed_cases
from pgfl.lab.audit.findings import attack
from tests.mutants.mutant import NOT_KEPT

ALPHA = 1e-6  # so unlikely that no right mechanism fails here


def main(name: str, trials: int) -> int:
    subject, _, path = name.partition("/")
    known = deployed_cases() if path == "deployed" else cases()
    case = next(case for case in known if case.name == subject)
    found = attack(case, path, trials, ALPHA)
    print(f"{name}: mu is at least {found.mu_lower:.3f}, claimed {found.claimed_mu:.3f}: {found.verdict}")
    return 0 if found.as_it_should_be else NOT_KEPT


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], int(sys.argv[2])))
