"""What can run: op definitions, OpenCL templates and tuning spaces."""
