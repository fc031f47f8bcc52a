"""What `gputune` itself offers a program on the host: tuning a model, and checking whether one runs."""
