"""Planted bugs in what rounds of a simulation note down, draw and compute with: charges, compiled releases, bytes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

LOOKS = "tests/privacy/test_mechanism.py::test_accounts_are_those_of_a_loop_that_looks_at_every_client_in_every_round"
EVERY = "tests/privacy/test_account.py::test_every_charge_is_there_whenever_somebody_looks"
INTERRUPTED = "tests/privacy/test_account.py::test_interrupted_while_it_adds_up_an_account_has_lost_nothing"
RELEASES = "tests/simulate/test_numba_releases.py::"
STREAMS = RELEASES + "test_numbers_that_are_drawn_where_they_are_needed_are_those_of_every_servers_stream"
BYTES = "tests/simulate/test_numba_bytes.py::test_bytes_are_the_rows_and_never_more"

CHARGES: tuple[Mutant, ...] = (
    Mutant(
        "releases-not-counted",
        "a release is paid for but not counted",
        "max_releases never ends, and by release every one has the first one's noise.",
        "privacy/account.py",
        "        np.add.at(self._releases, clients, np.int32(1))\n",
        "",
        ("tests/privacy/test_mechanism.py",),
    ),
    Mutant(
        "charges-not-added-up",
        "whoever looks at ρ sees it without the charges that were put off",
        "Results and checkpoints state too little, and a budget in ρ is met too late.",
        "privacy/account.py",
        "        self._add_up()\n        return self._rho\n",
        "        return self._rho\n",
        (EVERY, LOOKS),
    ),
    Mutant(
        "releases-not-added-up",
        "whoever counts releases misses those that were put off",
        "As above, for budgets in releases.",
        "privacy/account.py",
        "        self._add_up()\n        return self._releases\n",
        "        return self._releases\n",
        (EVERY, LOOKS),
    ),
    Mutant(
        "charges-written-over",
        "a charge that is put off takes the place of the ones before it",
        "Of several rounds between two looks, the last is counted.",
        "privacy/account.py",
        "start, end = self._noted, self._noted + len(clients)",
        "start, end = 0, len(clients)",
        (EVERY,),
    ),
    Mutant(
        "charges-dropped-when-full",
        "when no more charges can be put off, they are forgotten",
        "Large trainings lose most of what they spent.",
        "privacy/account.py",
        "        if end > NOTED:\n            self._add_up()\n",
        "        if end > NOTED:\n",
        (EVERY,),
    ),
    Mutant(
        "charges-of-a-client-added-once",
        "of a client's charges that were put off, one is added",
        "NumPy adds once where an index stands twice.",
        "privacy/account.py",
        "np.add.at(self._rho, clients, phi)",
        "self._rho[clients] += phi",
        (EVERY,),
    ),
    Mutant(
        "charges-forgotten-before-they-are-added",
        "charges that were put off are forgotten before they are added up",
        "An interruption in between loses them.",
        "privacy/account.py",
        "            self._add(self._clients[: self._noted], self._phi[: self._noted])\n            self._noted = 0\n",
        "            end, self._noted = self._noted, 0\n            self._add(self._clients[:end], self._phi[:end])\n",
        (INTERRUPTED,),
    ),
    Mutant(
        "compiled-noise-unscaled",
        "the compiled release adds normal numbers that are not multiplied by σ",
        "The noise is that of another budget.",
        "simulate/numba_releases.py",
        "normals[i, f] * scale",
        "normals[i, f]",
        (RELEASES + "test_a_compiled_release_is_the_plain_one_bit_by_bit",),
    ),
    Mutant(
        "compiled-drawn-noise-unscaled",
        "the compiled release that draws does not multiply by σ",
        "As above.",
        "simulate/numba_releases.py",
        "product_rounded(load(made, own + f), scale)",
        "load(made, own + f)",
        (STREAMS,),
    ),
    Mutant(
        "compiled-release-unchecked",
        "the compiled release takes a σ of 0, and models that are not finite",
        "A model would leave without noise.",
        "simulate/numba_releases.py",
        "len(sigma) == len(clients) == len(normals) and _all_fit(clients, sigma, model)",
        "len(sigma) == len(clients) == len(normals)",
        (RELEASES + "test_what_the_plain_release_refuses_is_not_released",),
    ),
    Mutant(
        "compiled-clean-mean",
        "the compiled release averages clean models",
        "The servers' models are not functions of the releases.",
        "simulate/numba_releases.py",
        "mean[f] += released[k, f] - dual[k, f]",
        "mean[f] += model[k, f] - dual[k, f]",
        (RELEASES + "test_a_compiled_release_is_the_plain_one_bit_by_bit",),
    ),
    Mutant(
        "compiled-noise-reused",
        "a compiled stream that is looked for within its block begins anew",
        "A resumed run draws noise again; two releases subtracted give the models' difference without it.",
        "simulate/numba_normals.py",
        "    while stream[WITHIN] < np.uint64(within):\n        draw_rest(stream, 0, out, rows)\n",
        "    stream[WITHIN] = np.uint64(within)\n",
        (STREAMS,),
    ),
    Mutant(
        "compiled-noise-shared",
        "all participants of a server get the same compiled noise",
        "As above.",
        "simulate/numba_releases.py",
        "        draw_next(streams[server], released[k])\n",
        "        if drawn == 0:\n            draw_next(streams[server], unused)\n        released[k] = unused\n",
        (STREAMS,),
    ),
    Mutant(
        "compiled-drawing-release-unchecked",
        "the compiled release that draws takes a σ of 0, and models that are not finite",
        "A model would leave without noise.",
        "simulate/numba_releases.py",
        "if not (len(sigma) == len(clients) and _all_fit(clients, sigma, model)):",
        "if len(sigma) != len(clients):",
        (RELEASES + "test_nothing_is_drawn_for_a_release_that_is_refused",),
    ),
    Mutant(
        "bytes-longer-than-rows",
        "rows that are kept as bytes may be longer than the client's own rows",
        "A bound on a row's norm, from which the noise follows, would not hold for what is computed with.",
        "simulate/numba_bytes.py",
        "            return least * (1.0 - tiny)\n",
        "            return unit\n",
        (BYTES,),
    ),
)
