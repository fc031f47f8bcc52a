/* What an agent and a target server say to each other. scripts/docs writes this file from the dataclasses of Python:
 * change those or scripts/c_tables.py, and not this file. */
#include "messages.h"

static const form SPAN_FORM = {
    .what = "Span", .row_bytes = sizeof(span), .least_bytes = 25,
    .is_closed = true, .count = 3, .fields = (const field[]){
        {"buffer", A_NUMBER, IN(span, buffer)},
        {"offset", A_NUMBER, IN(span, offset)},
        {"nbytes", A_NUMBER, IN(span, nbytes)},
    }};

static const form GIVEN_FORM = {
    .what = "Given", .row_bytes = sizeof(given), .least_bytes = 33,
    .is_closed = true, .count = 4, .fields = (const field[]){
        {"buffer", A_NUMBER, IN(given, buffer)},
        {"offset", A_NUMBER, IN(given, offset)},
        {"nbytes", A_NUMBER, IN(given, nbytes)},
        {"scalar", A_SIGNED, IN(given, scalar)},
    }};

static const form BATCH_FORM = {
    .what = "Batch", .row_bytes = sizeof(batch), .least_bytes = 28,
    .is_closed = true, .count = 3, .fields = (const field[]){
        {"bounds", SIZES, MANY(batch, bounds, bounds_count)},
        {"launches", A_NUMBER, IN(batch, launches)},
        {"counted", A_FLAG, IN(batch, counted)},
    }};

static const form GUARDED_FORM = {
    .what = "Guarded", .row_bytes = sizeof(guarded), .least_bytes = 54,
    .is_closed = true, .count = 6, .fields = (const field[]){
        {"buffer", A_NUMBER, IN(guarded, buffer)},
        {"offset", A_NUMBER, IN(guarded, offset)},
        {"nbytes", A_NUMBER, IN(guarded, nbytes)},
        {"guard_bytes", A_NUMBER, IN(guarded, guard_bytes)},
        {"inside", A_NUMBER, IN(guarded, inside)},
        {"summed", A_FLAG, IN(guarded, summed)},
    }};

static const form EXPECTED_FORM = {
    .what = "Expected", .row_bytes = sizeof(expected), .least_bytes = 22,
    .is_closed = true, .count = 3, .fields = (const field[]){
        {"kept", A_NUMBER, IN(expected, kept)},
        {"dtype", A_NAME, IN(expected, dtype), .names = DTYPES},
        {"bounds", A_BLOB, IN(expected, bounds)},
    }};

static const form SEEN_FORM = {
    .what = "Seen", .row_bytes = sizeof(seen), .least_bytes = 56,
    .is_closed = true, .count = 5, .fields = (const field[]){
        {"crc32", A_NUMBER, IN(seen, crc32)},
        {"before", A_NUMBER, IN(seen, before)},
        {"before_distance", A_NUMBER, IN(seen, before_distance)},
        {"after", A_NUMBER, IN(seen, after)},
        {"after_distance", A_NUMBER, IN(seen, after_distance)},
    }};

static const form FOUND_FORM = {
    .what = "Found", .row_bytes = sizeof(found), .least_bytes = 41,
    .is_closed = true, .count = 5, .fields = (const field[]){
        {"wrong", A_NUMBER, IN(found, wrong)},
        {"poisoned", A_NUMBER, IN(found, poisoned)},
        {"first", A_NUMBER, IN(found, first)},
        {"found", A_BLOB, IN(found, found)},
        {"maximum", A_BLOB, IN(found, maximum)},
    }};

static const char *const AUTHENTICATIONS[] = {"none", "token", NULL};
static const form HELLO_MESSAGE_FORM = {
    .what = "Hello", .row_bytes = sizeof(hello_message), .least_bytes = 10,
    .count = 5, .fields = (const field[]){
        {"protocol", A_NUMBER, IN(hello_message, protocol)},
        {"software", A_TEXT, IN(hello_message, software)},
        {"nonce", A_TEXT, IN(hello_message, nonce)},
        {"authentication", A_NAME, IN(hello_message, authentication), .names = AUTHENTICATIONS},
        {"salt", A_TEXT, IN(hello_message, salt)},
    }};

static const form PROOF_MESSAGE_FORM = {
    .what = "Proof", .row_bytes = sizeof(proof_message), .least_bytes = 1,
    .count = 0};

static const form BEGIN_MESSAGE_FORM = {
    .what = "Begin", .row_bytes = sizeof(begin_message), .least_bytes = 19,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"session", A_TEXT, IN(begin_message, session)},
        {"earlier", A_TEXT, IN(begin_message, earlier)},
    }};

static const form LIST_DEVICES_MESSAGE_FORM = {
    .what = "ListDevices", .row_bytes = sizeof(list_devices_message), .least_bytes = 1,
    .is_closed = true, .count = 0};

static const form OPEN_MESSAGE_FORM = {
    .what = "Open", .row_bytes = sizeof(open_message), .least_bytes = 30,
    .is_closed = true, .count = 3, .fields = (const field[]){
        {"place", A_NUMBER, IN(open_message, place)},
        {"profiling", A_FLAG, IN(open_message, profiling)},
        {"variables", TEXTS, MANY(open_message, variables, variables_count)},
    }};

static const form ALLOCATE_MESSAGE_FORM = {
    .what = "Allocate", .row_bytes = sizeof(allocate_message), .least_bytes = 17,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"handle", A_NUMBER, IN(allocate_message, handle)},
        {"nbytes", A_NUMBER, IN(allocate_message, nbytes)},
    }};

static const form FREE_MESSAGE_FORM = {
    .what = "Free", .row_bytes = sizeof(free_message), .least_bytes = 10,
    .is_closed = true, .count = 1, .fields = (const field[]){
        {"handles", SIZES, MANY(free_message, handles, handles_count)},
    }};

static const form WRITE_MESSAGE_FORM = {
    .what = "Write", .row_bytes = sizeof(write_message), .least_bytes = 14,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"spans", ROWS, MANY(write_message, spans, spans_count), .form = &SPAN_FORM},
        {"data", BLOBS, MANY(write_message, data, data_count)},
    }};

static const form FILL_MESSAGE_FORM = {
    .what = "Fill", .row_bytes = sizeof(fill_message), .least_bytes = 18,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"spans", ROWS, MANY(fill_message, spans, spans_count), .form = &SPAN_FORM},
        {"patterns", SIZES, MANY(fill_message, patterns, patterns_count)},
    }};

static const form COPY_MESSAGE_FORM = {
    .what = "Copy", .row_bytes = sizeof(copy_message), .least_bytes = 12,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"spans", ROWS, MANY(copy_message, spans, spans_count), .form = &SPAN_FORM},
        {"to", ROWS, MANY(copy_message, to, to_count), .form = &SPAN_FORM},
    }};

static const form READ_MESSAGE_FORM = {
    .what = "Read", .row_bytes = sizeof(read_message), .least_bytes = 8,
    .is_closed = true, .count = 1, .fields = (const field[]){
        {"spans", ROWS, MANY(read_message, spans, spans_count), .form = &SPAN_FORM},
    }};

static const form READ_FILES_MESSAGE_FORM = {
    .what = "ReadFiles", .row_bytes = sizeof(read_files_message), .least_bytes = 19,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"paths", TEXTS, MANY(read_files_message, paths, paths_count)},
        {"within_ns", A_NUMBER, IN(read_files_message, within_ns)},
    }};

static const form KEEP_MESSAGE_FORM = {
    .what = "Keep", .row_bytes = sizeof(keep_message), .least_bytes = 15,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"handle", A_NUMBER, IN(keep_message, handle)},
        {"data", A_BLOB, IN(keep_message, data)},
    }};

static const form CHECK_MESSAGE_FORM = {
    .what = "Check", .row_bytes = sizeof(check_message), .least_bytes = 18,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"zones", ROWS, MANY(check_message, zones, zones_count), .form = &GUARDED_FORM},
        {"expected", ROWS, MANY(check_message, expected, expected_count), .form = &EXPECTED_FORM},
    }};

static const form BUILD_MESSAGE_FORM = {
    .what = "Build", .row_bytes = sizeof(build_message), .least_bytes = 34,
    .is_closed = true, .count = 4, .fields = (const field[]){
        {"handle", A_NUMBER, IN(build_message, handle)},
        {"source", A_TEXT, IN(build_message, source)},
        {"options", A_TEXT, IN(build_message, options)},
        {"binary", A_BLOB, IN(build_message, binary)},
    }};

static const form HARVEST_MESSAGE_FORM = {
    .what = "Harvest", .row_bytes = sizeof(harvest_message), .least_bytes = 10,
    .is_closed = true, .count = 1, .fields = (const field[]){
        {"program", A_NUMBER, IN(harvest_message, program)},
    }};

static const form BIND_MESSAGE_FORM = {
    .what = "Bind", .row_bytes = sizeof(bind_message), .least_bytes = 61,
    .is_closed = true, .count = 6, .fields = (const field[]){
        {"handle", A_NUMBER, IN(bind_message, handle)},
        {"program", A_NUMBER, IN(bind_message, program)},
        {"entry", A_TEXT, IN(bind_message, entry)},
        {"global_size", DIMENSIONS, FEW(bind_message, global_size, global_size_count, 3)},
        {"local_size", DIMENSIONS, FEW(bind_message, local_size, local_size_count, 3)},
        {"arguments", ROWS, MANY(bind_message, arguments, arguments_count), .form = &GIVEN_FORM},
    }};

static const form FIRST_LAUNCH_MESSAGE_FORM = {
    .what = "FirstLaunch", .row_bytes = sizeof(first_launch_message), .least_bytes = 15,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"bound", A_NUMBER, IN(first_launch_message, bound)},
        {"waits", A_FLAG, IN(first_launch_message, waits)},
    }};

static const form TIME_PASS_MESSAGE_FORM = {
    .what = "TimePass", .row_bytes = sizeof(time_pass_message), .least_bytes = 21,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"batches", ROWS, MANY(time_pass_message, batches, batches_count), .form = &BATCH_FORM},
        {"enough_ns", A_NUMBER, IN(time_pass_message, enough_ns)},
    }};

static const form LOAD_CONTEXT_MESSAGE_FORM = {
    .what = "LoadContext", .row_bytes = sizeof(load_context_message), .least_bytes = 40,
    .is_closed = true, .count = 5, .fields = (const field[]){
        {"handle", A_NUMBER, IN(load_context_message, handle)},
        {"data", A_BLOB, IN(load_context_message, data)},
        {"graph", A_TEXT, IN(load_context_message, graph)},
        {"strict", A_FLAG, IN(load_context_message, strict)},
        {"features", TEXTS, MANY(load_context_message, features, features_count)},
    }};

static const form RUN_CONTEXT_MESSAGE_FORM = {
    .what = "RunContext", .row_bytes = sizeof(run_context_message), .least_bytes = 55,
    .is_closed = true, .count = 6, .fields = (const field[]){
        {"context", A_NUMBER, IN(run_context_message, context)},
        {"inputs", BLOBS, MANY(run_context_message, inputs, inputs_count)},
        {"recorded", A_FLAG, IN(run_context_message, recorded)},
        {"persistent", A_FLAG, IN(run_context_message, persistent)},
        {"state", A_NUMBER, IN(run_context_message, state)},
        {"length", A_NUMBER, IN(run_context_message, length)},
    }};

static const form OPEN_STATE_MESSAGE_FORM = {
    .what = "OpenState", .row_bytes = sizeof(open_state_message), .least_bytes = 25,
    .is_closed = true, .count = 3, .fields = (const field[]){
        {"handle", A_NUMBER, IN(open_state_message, handle)},
        {"context", A_NUMBER, IN(open_state_message, context)},
        {"other", A_NUMBER, IN(open_state_message, other)},
    }};

static const form RESET_STATE_MESSAGE_FORM = {
    .what = "ResetState", .row_bytes = sizeof(reset_state_message), .least_bytes = 8,
    .is_closed = true, .count = 1, .fields = (const field[]){
        {"state", A_NUMBER, IN(reset_state_message, state)},
    }};

static const form READ_STATE_MESSAGE_FORM = {
    .what = "ReadState", .row_bytes = sizeof(read_state_message), .least_bytes = 23,
    .is_closed = true, .count = 3, .fields = (const field[]){
        {"state", A_NUMBER, IN(read_state_message, state)},
        {"input", A_TEXT, IN(read_state_message, input)},
        {"nbytes", A_NUMBER, IN(read_state_message, nbytes)},
    }};

static const char *const LEVELS[] = {"basic", "detailed", NULL};
static const form BEGIN_PROFILE_MESSAGE_FORM = {
    .what = "BeginProfile", .row_bytes = sizeof(begin_profile_message), .least_bytes = 22,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"context", A_NUMBER, IN(begin_profile_message, context)},
        {"level", A_NAME, IN(begin_profile_message, level), .names = LEVELS},
    }};

static const form END_PROFILE_MESSAGE_FORM = {
    .what = "EndProfile", .row_bytes = sizeof(end_profile_message), .least_bytes = 1,
    .is_closed = true, .count = 0};

static const form SET_VOTES_MESSAGE_FORM = {
    .what = "SetVotes", .row_bytes = sizeof(set_votes_message), .least_bytes = 18,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"place", A_NUMBER, IN(set_votes_message, place)},
        {"settings", SIZES, MANY(set_votes_message, settings, settings_count)},
    }};

static const form VOTE_MESSAGE_FORM = {
    .what = "Vote", .row_bytes = sizeof(vote_message), .least_bytes = 9,
    .is_closed = true, .count = 1, .fields = (const field[]){
        {"begins", A_FLAG, IN(vote_message, begins)},
    }};

static const form GREETING_MESSAGE_FORM = {
    .what = "Greeting", .row_bytes = sizeof(greeting_message), .least_bytes = 8,
    .is_closed = true, .count = 1, .fields = (const field[]){
        {"ended", A_TEXT, IN(greeting_message, ended)},
    }};

static const form DEVICES_MESSAGE_FORM = {
    .what = "Devices", .row_bytes = sizeof(devices_message), .least_bytes = 10,
    .is_closed = true, .count = 1, .fields = (const field[]){
        {"devices", ROWS, MANY(devices_message, devices, devices_count), .form = &IDENTITY},
    }};

static const form OPENED_MESSAGE_FORM = {
    .what = "Opened", .row_bytes = sizeof(opened_message), .least_bytes = 25,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"cache_bytes", A_NUMBER, IN(opened_message, cache_bytes)},
        {"variables", TEXTS, MANY(opened_message, variables, variables_count)},
    }};

static const form DONE_MESSAGE_FORM = {
    .what = "Done", .row_bytes = sizeof(done_message), .least_bytes = 1,
    .is_closed = true, .count = 0};

static const form CONTENTS_MESSAGE_FORM = {
    .what = "Contents", .row_bytes = sizeof(contents_message), .least_bytes = 7,
    .is_closed = true, .count = 1, .fields = (const field[]){
        {"data", BLOBS, MANY(contents_message, data, data_count)},
    }};

static const form CHECKED_MESSAGE_FORM = {
    .what = "Checked", .row_bytes = sizeof(checked_message), .least_bytes = 14,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"seen", ROWS, MANY(checked_message, seen, seen_count), .form = &SEEN_FORM},
        {"found", ROWS, MANY(checked_message, found, found_count), .form = &FOUND_FORM},
    }};

static const form BUILT_MESSAGE_FORM = {
    .what = "Built", .row_bytes = sizeof(built_message), .least_bytes = 11,
    .is_closed = true, .count = 1, .fields = (const field[]){
        {"build_ns", A_NUMBER, IN(built_message, build_ns)},
    }};

static const form TIMED_MESSAGE_FORM = {
    .what = "Timed", .row_bytes = sizeof(timed_message), .least_bytes = 17,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"wall_ns", A_BLOB, IN(timed_message, wall_ns)},
        {"times", A_BLOB, IN(timed_message, times)},
    }};

static const form LOADED_MESSAGE_FORM = {
    .what = "Loaded", .row_bytes = sizeof(loaded_message), .least_bytes = 20,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"warnings", TEXTS, MANY(loaded_message, warnings, warnings_count)},
        {"load_ns", A_NUMBER, IN(loaded_message, load_ns)},
    }};

static const char *const FORMS[] = {"launches", "recorded", "persistent", "aborted", NULL};
static const form RAN_MESSAGE_FORM = {
    .what = "Ran", .row_bytes = sizeof(ran_message), .least_bytes = 35,
    .is_closed = true, .count = 3, .fields = (const field[]){
        {"outputs", BLOBS, MANY(ran_message, outputs, outputs_count)},
        {"elapsed_ns", A_NUMBER, IN(ran_message, elapsed_ns)},
        {"form", A_NAME, IN(ran_message, form), .names = FORMS},
    }};

static const form STEERED_MESSAGE_FORM = {
    .what = "Steered", .row_bytes = sizeof(steered_message), .least_bytes = 11,
    .is_closed = true, .count = 1, .fields = (const field[]){
        {"controls", TEXTS, MANY(steered_message, controls, controls_count)},
    }};

static const form STARTED_MESSAGE_FORM = {
    .what = "Started", .row_bytes = sizeof(started_message), .least_bytes = 1,
    .is_closed = true, .count = 0};

static const form FAILED_MESSAGE_FORM = {
    .what = "Failed", .row_bytes = sizeof(failed_message), .least_bytes = 18,
    .is_closed = true, .count = 2, .fields = (const field[]){
        {"status", A_TEXT, IN(failed_message, status)},
        {"message", A_TEXT, IN(failed_message, message)},
    }};

const char *const GIVEN_VARIABLES[] = {"POCL_AFFINITY", NULL};
const char *const TOLD_VARIABLES[] = {"AMD_DEBUG", "AMD_OCL_BUILD_OPTIONS*", "CLVK_*", "CL_CONFIG_*",
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_FORCE_PTX_JIT", "CUDA_LAUNCH_BLOCKING", "CUDA_SCALE_LAUNCH_QUEUES",
    "DPCPP_CPU_*", "GALLIVM_*", "GPU_ENABLE_WAVE32_MODE", "GPU_ENABLE_WGP_MODE", "HSA_CU_MASK",
    "HSA_OVERRIDE_GFX_VERSION", "HSA_XNACK", "IGC_*", "INTEL_DEBUG", "IR3_SHADER_DEBUG", "LP_*", "NEOReadDebugKeys",
    "OPENCL_LAYERS", "POCL_AFFINITY", "POCL_ARGS_*", "POCL_BINARY_SPECIALIZE_WG", "POCL_CUDA_GPU_ARCH",
    "POCL_EXTRA_BUILD_FLAGS", "POCL_FORCE_PARALLEL_OUTER_LOOP", "POCL_FULL_REPLICATION_THRESHOLD",
    "POCL_KERNELLIB_NAME", "POCL_KERNEL_CACHE", "POCL_LEVEL0_*", "POCL_LLVM_CPU_NAME", "POCL_PATH_*",
    "POCL_PTHREAD_MIN_THREADS", "POCL_TBB_*", "POCL_TRACING*", "POCL_VECTORIZER_FORCE_VECTOR_WIDTH",
    "POCL_VECTORIZER_PREFER_VECTOR_WIDTH", "POCL_WILOOPS_MAX_UNROLL_COUNT", "POCL_WORK_GROUP_METHOD",
    "POCL_WORK_GROUP_SPECIALIZATION", "ROC_GLOBAL_CU_MASK", "RUSTICL_DEBUG", "RUSTICL_MAX_WORK_GROUPS", NULL};

const form *const MESSAGES[] = {
    [HELLO_MESSAGE] = &HELLO_MESSAGE_FORM,
    [PROOF_MESSAGE] = &PROOF_MESSAGE_FORM,
    [BEGIN_MESSAGE] = &BEGIN_MESSAGE_FORM,
    [LIST_DEVICES_MESSAGE] = &LIST_DEVICES_MESSAGE_FORM,
    [OPEN_MESSAGE] = &OPEN_MESSAGE_FORM,
    [ALLOCATE_MESSAGE] = &ALLOCATE_MESSAGE_FORM,
    [FREE_MESSAGE] = &FREE_MESSAGE_FORM,
    [WRITE_MESSAGE] = &WRITE_MESSAGE_FORM,
    [FILL_MESSAGE] = &FILL_MESSAGE_FORM,
    [COPY_MESSAGE] = &COPY_MESSAGE_FORM,
    [READ_MESSAGE] = &READ_MESSAGE_FORM,
    [READ_FILES_MESSAGE] = &READ_FILES_MESSAGE_FORM,
    [KEEP_MESSAGE] = &KEEP_MESSAGE_FORM,
    [CHECK_MESSAGE] = &CHECK_MESSAGE_FORM,
    [BUILD_MESSAGE] = &BUILD_MESSAGE_FORM,
    [HARVEST_MESSAGE] = &HARVEST_MESSAGE_FORM,
    [BIND_MESSAGE] = &BIND_MESSAGE_FORM,
    [FIRST_LAUNCH_MESSAGE] = &FIRST_LAUNCH_MESSAGE_FORM,
    [TIME_PASS_MESSAGE] = &TIME_PASS_MESSAGE_FORM,
    [LOAD_CONTEXT_MESSAGE] = &LOAD_CONTEXT_MESSAGE_FORM,
    [RUN_CONTEXT_MESSAGE] = &RUN_CONTEXT_MESSAGE_FORM,
    [OPEN_STATE_MESSAGE] = &OPEN_STATE_MESSAGE_FORM,
    [RESET_STATE_MESSAGE] = &RESET_STATE_MESSAGE_FORM,
    [READ_STATE_MESSAGE] = &READ_STATE_MESSAGE_FORM,
    [BEGIN_PROFILE_MESSAGE] = &BEGIN_PROFILE_MESSAGE_FORM,
    [END_PROFILE_MESSAGE] = &END_PROFILE_MESSAGE_FORM,
    [SET_VOTES_MESSAGE] = &SET_VOTES_MESSAGE_FORM,
    [VOTE_MESSAGE] = &VOTE_MESSAGE_FORM,
    [GREETING_MESSAGE] = &GREETING_MESSAGE_FORM,
    [DEVICES_MESSAGE] = &DEVICES_MESSAGE_FORM,
    [OPENED_MESSAGE] = &OPENED_MESSAGE_FORM,
    [DONE_MESSAGE] = &DONE_MESSAGE_FORM,
    [CONTENTS_MESSAGE] = &CONTENTS_MESSAGE_FORM,
    [CHECKED_MESSAGE] = &CHECKED_MESSAGE_FORM,
    [BUILT_MESSAGE] = &BUILT_MESSAGE_FORM,
    [TIMED_MESSAGE] = &TIMED_MESSAGE_FORM,
    [LOADED_MESSAGE] = &LOADED_MESSAGE_FORM,
    [RAN_MESSAGE] = &RAN_MESSAGE_FORM,
    [STEERED_MESSAGE] = &STEERED_MESSAGE_FORM,
    [STARTED_MESSAGE] = &STARTED_MESSAGE_FORM,
    [FAILED_MESSAGE] = &FAILED_MESSAGE_FORM,
};
