"""What is asked of a fleet, and when: traces read from files, and generators. Pure: no clock, no sockets."""
