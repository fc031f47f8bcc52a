"""List options and keys of the original tools, each with the test that shows what it does, or REFUSED."""

from dataclasses import dataclass

REFUSED = "refused"
GENERATOR, NET_RUN, UTILITY, VIEWER = (
    "context-binary-generator",
    "net-run",
    "context-binary-utility",
    "profile-viewer",
)
THROUGHPUT = "throughput-net-run"
_HERE = "tests/client/cli/test_original_options.py"
_GENERATION = "tests/client/generation"
_RUNS = "tests/client/run"
_VIEWER = "tests/client/cli/test_profile_viewer.py"


@dataclass(frozen=True)
class Option:
    """An option of a command; shown_by: the test file that shows what it does, or REFUSED."""

    command: str
    name: str
    shown_by: str


OPTIONS = (
    Option(GENERATOR, "--backend", _HERE),
    Option(GENERATOR, "--backend_binary", REFUSED),
    Option(GENERATOR, "--binary_file", f"{_GENERATION}/test_generator.py"),
    Option(GENERATOR, "--config_file", f"{_GENERATION}/test_several_models.py"),
    Option(GENERATOR, "--data_format_config", REFUSED),
    Option(GENERATOR, "--dlc_path", REFUSED),
    Option(GENERATOR, "--enable_intermediate_outputs", "tests/client/model/test_chosen_outputs.py"),
    Option(GENERATOR, "--help", _HERE),
    Option(GENERATOR, "--input_output_tensor_mem_type", "tests/client/test_memory_types.py"),
    Option(GENERATOR, "--log_level", _HERE),
    Option(GENERATOR, "--model", f"{_GENERATION}/test_several_models.py"),
    Option(GENERATOR, "--model_prefix", REFUSED),
    Option(GENERATOR, "--op_packages", "tests/client/model/test_op_packages.py"),
    Option(GENERATOR, "--output_dir", f"{_GENERATION}/test_generator.py"),
    Option(GENERATOR, "--platform_options", REFUSED),
    Option(GENERATOR, "--profiling_level", f"{_GENERATION}/test_schematic.py"),
    Option(GENERATOR, "--profiling_option", f"{_GENERATION}/test_schematic.py"),
    Option(GENERATOR, "--set_output_tensors", "tests/client/model/test_chosen_outputs.py"),
    Option(GENERATOR, "--system_library", REFUSED),
    Option(GENERATOR, "--version", _HERE),
    Option(NET_RUN, "--backend", _HERE),
    Option(NET_RUN, "--batch_multiplier", REFUSED),
    Option(NET_RUN, "--config_file", _HERE),
    Option(NET_RUN, "--debug", REFUSED),
    Option(NET_RUN, "--dlc_path", REFUSED),
    Option(NET_RUN, "--duration", f"{_RUNS}/test_inferences.py"),
    Option(NET_RUN, "--help", _HERE),
    Option(NET_RUN, "--input_list", f"{_RUNS}/test_net_run.py"),
    Option(NET_RUN, "--perf_config_yaml", "tests/client/cli/test_perf_profiles.py"),
    Option(NET_RUN, "--perf_profile", "tests/client/cli/test_perf_profiles.py"),
    Option(NET_RUN, "--keep_num_outputs", f"{_RUNS}/test_inferences.py"),
    Option(NET_RUN, "--log_level", _HERE),
    Option(NET_RUN, "--max_input_cache_size_mb", REFUSED),
    Option(NET_RUN, "--max_input_cache_tensor_sets", REFUSED),
    Option(NET_RUN, "--model", REFUSED),
    Option(NET_RUN, "--native_input_tensor_names", REFUSED),
    Option(NET_RUN, "--num_inferences", f"{_RUNS}/test_net_run.py"),
    Option(NET_RUN, "--op_packages", REFUSED),
    Option(NET_RUN, "--output_data_type", REFUSED),
    Option(NET_RUN, "--output_dir", f"{_RUNS}/test_net_run.py"),
    Option(NET_RUN, "--platform_options", REFUSED),
    Option(NET_RUN, "--profiling_level", "tests/client/run/test_in_parts.py"),
    Option(NET_RUN, "--retrieve_context", f"{_RUNS}/test_net_run.py"),
    Option(NET_RUN, "--set_output_tensors", REFUSED),
    Option(NET_RUN, "--shared_buffer", f"{_RUNS}/test_net_run.py"),
    Option(NET_RUN, "--synchronous", REFUSED),
    Option(NET_RUN, "--system_library", REFUSED),
    Option(NET_RUN, "--timeout", _HERE),
    Option(NET_RUN, "--use_mmap", REFUSED),
    Option(NET_RUN, "--use_native_input_files", _HERE),
    Option(NET_RUN, "--use_native_output_files", _HERE),
    Option(NET_RUN, "--validate_binary", _HERE),
    Option(NET_RUN, "--version", _HERE),
    Option(THROUGHPUT, "--backend", REFUSED),
    Option(THROUGHPUT, "--config", f"{_RUNS}/throughput/test_throughput_net_run.py"),
    Option(THROUGHPUT, "--iteration", REFUSED),
    Option(THROUGHPUT, "--output", REFUSED),
    Option(THROUGHPUT, "--version", _HERE),
    Option(UTILITY, "--backend", REFUSED),
    Option(UTILITY, "--context_binary", "tests/client/cli/test_context_binary_utility.py"),
    Option(UTILITY, "--json_file", "tests/client/cli/test_context_binary_utility.py"),
    Option(UTILITY, "--version", _HERE),
    Option(VIEWER, "--config", _VIEWER),
    Option(VIEWER, "--extract_opaque_objects", REFUSED),
    Option(VIEWER, "--input_log", _VIEWER),
    Option(VIEWER, "--output", _VIEWER),
    Option(VIEWER, "--reader", _VIEWER),
    Option(VIEWER, "--schematic", _VIEWER),
    Option(VIEWER, "--standardized_json_output", REFUSED),
    Option(VIEWER, "--version", _HERE),
    Option(VIEWER, "--zoom_end", _VIEWER),
    Option(VIEWER, "--zoom_start", _VIEWER),
)
KEYS = {
    "backend_extensions": "taken",
    "cache_compatibility_mode": "taken",
    "config_file_path": "taken",
    "context_configs": "taken",
    "context_priority": "taken",
    "disable_memory_optimizations": "taken",
    "disable_node_optimizations": "taken",
    "disable_queue_recording": "taken",
    "enable_graphs": "taken",
    "graph_configs": "taken",
    "graph_names": "taken",
    "invalidate_kernel_repo": "taken",
    "invalidate_performance_cache": "taken",
    "kernel_repo_path": "taken",
    "memory_limit_hint": "taken",
    "num_max_events": "taken",
    "perf_hint": REFUSED,
    "performance_cache_dir": "taken",
    "precision_mode": "taken",
    "profile_configs": "taken",
    "shared_library_path": "taken",
    "tuning_mode": "taken",
    "graph_priority": REFUSED,
    "is_persistent_binary": REFUSED,
    "async_execute_queue_depth": REFUSED,
}
"""Keys of config files."""
