"""Two worlds, one transcript: the deployed client, driven by a hostile site, with tables that differ in one record."""
