"""Bugs of the network that a fault, a stranger or an operator's mistake would bring to light."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ALIVE, COMMANDS = "tests/deploy/test_site_alive.py::", "tests/deploy/test_commands.py::"
GUARD, BACKUPS = "tests/deploy/test_guarded_listener.py::", "tests/deploy/test_backups.py::"
LISTENER, BACKUP = "deploy/guarded_listener.py", "deploy/site/site_backup.py"

WORLD = (
    Mutant(
        "site-half-alive",
        "an exception in a round is logged and forgotten",
        "The process lives, the status says that it runs, and no round is ever completed again.",
        "deploy/site/site.py",
        "        except Exception as error:\n            self.life.fail(error)\n",
        '        except Exception as error:\n            log.error("a round failed: %s", error)\n',
        (ALIVE + "test_an_exception_ends_the_site_with_a_reason_and_a_code_to_restart_it[combine]",),
    ),
    Mutant(
        "any-cluster-admitted",
        "a client can be admitted to a cluster that is not trained",
        "After a typo a restart is refused.",
        "cli/site.py",
        "        _check_cluster(cluster, home, store)\n",
        "",
        (COMMANDS + "test_a_cluster_that_is_not_trained_is_refused_at_once_and_stops_a_site_that_no_longer_trains_it",),
    ),
    Mutant(
        "bodies-unlimited",
        "Flower is passed on bodies of any length",
        "One request of a stranger takes gigabytes of memory.",
        "deploy/flower/superlink.py",
        "        if length > self.most:\n",
        "        if False:\n",
        (GUARD + "test_a_body_is_counted_whether_it_states_its_length_or_not",),
    ),
    Mutant(
        "connections-unlimited",
        "one address may open any number of connections",
        "A thousand idle ones lock the clients out.",
        LISTENER,
        "self._open[host] >= self.limits.per_address or ",
        "",
        (GUARD + "test_connections_of_one_address_are_limited_and_the_silent_ones_make_room_soon",),
    ),
    Mutant(
        "silent-clients-always-asked",
        "a client that stays silent is asked in every round",
        "Every round takes its full deadline.",
        "deploy/site/site_rounds.py",
        "if self._misses.get(client, (0, 0))[1] < self.current}",
        "}",
        ("tests/deploy/test_rounds.py",),
    ),
    Mutant(
        "last-acceptance-untold",
        "a client does not learn that its last answer was accepted",
        "After a complete training its account says that the site has not confirmed one release.",
        "deploy/client/client.py",
        "            self.rounds.confirm(frame.header.accepted)\n",
        "            pass\n",
        (BACKUPS + "test_after_a_complete_training_all_releases_are_confirmed",),
    ),
    Mutant(
        "site-restores-stale-accounts",
        "a site can be put back with accounts from before its last move",
        "Budget that is spent is spent again.",
        BACKUP,
        "if accounts.get(client, -1) < releases:",
        "if False:",
        (BACKUPS + "test_a_site_never_comes_back_with_fewer_releases_on_an_account_than_it_moved_with",),
    ),
    Mutant(
        "moved-site-goes-on",
        "a site serves on after it has moved into a backup",
        "Two sites spend the same accounts.",
        "cli/site.py",
        "    check_not_moved(Path(loaded.home))\n",
        "",
        (BACKUPS + "test_a_site_moves_with_the_accounts_that_it_keeps_and_its_old_folder_serves_no_more",),
    ),
    Mutant(
        "handshakes-for-ever",
        "a caller of Flower's port may take any time for its handshake",
        "A thousand silent connections lock everybody else out.",
        "deploy/flower/port_guard.py",
        "if self.over.done() or not (self.handshake.done and self.moved):",
        "if self.over.done():",
        (GUARD + "test_connections_of_one_address_are_limited_and_the_silent_ones_make_room_soon",),
    ),
)
