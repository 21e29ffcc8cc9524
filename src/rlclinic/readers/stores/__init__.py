"""Where runs are kept: databases and folders of trackers, archives, servers."""
