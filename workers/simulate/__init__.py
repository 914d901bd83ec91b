"""A fleet in virtual time: the real engine and the real router core, without sockets or waiting."""
