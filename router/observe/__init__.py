"""What can be seen of a running router: metrics, rows of the fleet, logs."""
