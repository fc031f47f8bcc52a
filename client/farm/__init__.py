"""Many devices for one command: which belongs to which job, what each works on, and what follows when one is lost."""
