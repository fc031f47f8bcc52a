/* The fields of records that files have, and the numbers that bound them; the rules of device families. scripts/docs
 * writes this file from the dataclasses of Python and core/tier.py: change those or scripts/c_tables.py. */
#include "../devices/tier.h"
#include "reading.h"

const uint64_t FORMAT_VERSION = 3;
const uint64_t REQUIRING_VERSION = 4;
const uint64_t LARGEST_HEADER_BYTES = 67108864;
const uint64_t LARGEST_MEMORY_BLOCK_BYTES = 1048576;
const uint64_t LARGEST_ARENA_BYTES = 72057594037927936;
const uint64_t LARGEST_TENSOR_BYTES = 1099511627776;
const uint64_t COUNTER_BYTES = 4;
const uint64_t PACKAGE_VERSION = 1;
const uint64_t MOST_CONTEXTS = 256;
const uint64_t LARGEST_INDEX_BYTES = 67108864;
const uint64_t LARGEST_SECTION_BYTES = 72057594037927936;
const uint64_t MOST_INFLATED = 1032;
const uint64_t LARGEST_CAPACITY = 2147483647;
typedef char numbers_are_equal[STATUS_BYTES == 64 && FLAG == 0 && ROUNDS == 1 && LONGEST == 2 && OFFSET_BYTES == 16 &&
    GPUTUNE_MOST_DIMENSIONS == 16 && FIXED == -1 ? 1 : -1];

const char *const DTYPES[] = {"float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64", "uint32",
    "uint16", "uint8", "bool", NULL};
const char *const SECTION_KINDS[] = {"head", "binary", "source", "weights", NULL};
const char *const FEATURES[] = {"offset_arguments", "device_features", "compressed_sections", "states", "whole_chunks",
    NULL};
const uint8_t DTYPE_BYTES[] = {4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1};
const status_name STATUS_NAMES[] = {
    {-1, "CL_DEVICE_NOT_FOUND"},
    {-2, "CL_DEVICE_NOT_AVAILABLE"},
    {-3, "CL_COMPILER_NOT_AVAILABLE"},
    {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {-5, "CL_OUT_OF_RESOURCES"},
    {-6, "CL_OUT_OF_HOST_MEMORY"},
    {-7, "CL_PROFILING_INFO_NOT_AVAILABLE"},
    {-8, "CL_MEM_COPY_OVERLAP"},
    {-9, "CL_IMAGE_FORMAT_MISMATCH"},
    {-10, "CL_IMAGE_FORMAT_NOT_SUPPORTED"},
    {-11, "CL_BUILD_PROGRAM_FAILURE"},
    {-12, "CL_MAP_FAILURE"},
    {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"},
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
    {-15, "CL_COMPILE_PROGRAM_FAILURE"},
    {-16, "CL_LINKER_NOT_AVAILABLE"},
    {-17, "CL_LINK_PROGRAM_FAILURE"},
    {-18, "CL_DEVICE_PARTITION_FAILED"},
    {-19, "CL_KERNEL_ARG_INFO_NOT_AVAILABLE"},
    {-30, "CL_INVALID_VALUE"},
    {-31, "CL_INVALID_DEVICE_TYPE"},
    {-32, "CL_INVALID_PLATFORM"},
    {-33, "CL_INVALID_DEVICE"},
    {-34, "CL_INVALID_CONTEXT"},
    {-35, "CL_INVALID_QUEUE_PROPERTIES"},
    {-36, "CL_INVALID_COMMAND_QUEUE"},
    {-37, "CL_INVALID_HOST_PTR"},
    {-38, "CL_INVALID_MEM_OBJECT"},
    {-39, "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR"},
    {-40, "CL_INVALID_IMAGE_SIZE"},
    {-41, "CL_INVALID_SAMPLER"},
    {-42, "CL_INVALID_BINARY"},
    {-43, "CL_INVALID_BUILD_OPTIONS"},
    {-44, "CL_INVALID_PROGRAM"},
    {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
    {-46, "CL_INVALID_KERNEL_NAME"},
    {-47, "CL_INVALID_KERNEL_DEFINITION"},
    {-48, "CL_INVALID_KERNEL"},
    {-49, "CL_INVALID_ARG_INDEX"},
    {-50, "CL_INVALID_ARG_VALUE"},
    {-51, "CL_INVALID_ARG_SIZE"},
    {-52, "CL_INVALID_KERNEL_ARGS"},
    {-53, "CL_INVALID_WORK_DIMENSION"},
    {-54, "CL_INVALID_WORK_GROUP_SIZE"},
    {-55, "CL_INVALID_WORK_ITEM_SIZE"},
    {-56, "CL_INVALID_GLOBAL_OFFSET"},
    {-57, "CL_INVALID_EVENT_WAIT_LIST"},
    {-58, "CL_INVALID_EVENT"},
    {-59, "CL_INVALID_OPERATION"},
    {-60, "CL_INVALID_GL_OBJECT"},
    {-61, "CL_INVALID_BUFFER_SIZE"},
    {-62, "CL_INVALID_MIP_LEVEL"},
    {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
    {-64, "CL_INVALID_PROPERTY"},
    {-65, "CL_INVALID_IMAGE_DESCRIPTOR"},
    {-66, "CL_INVALID_COMPILER_OPTIONS"},
    {-67, "CL_INVALID_LINKER_OPTIONS"},
    {-68, "CL_INVALID_DEVICE_PARTITION_COUNT"},
    {-69, "CL_INVALID_PIPE_SIZE"},
    {-70, "CL_INVALID_DEVICE_QUEUE"},
    {-71, "CL_INVALID_SPEC_ID"},
    {-72, "CL_MAX_SIZE_RESTRICTION_EXCEEDED"},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
    {-1138, "CL_INVALID_COMMAND_BUFFER_KHR"},
    {-1139, "CL_INVALID_SYNC_POINT_WAIT_LIST_KHR"},
    {-1140, "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR"},
    {-1141, "CL_INVALID_MUTABLE_COMMAND_KHR"},
    {0, NULL}};
const tier_rule GPU_RULES[] = {
    {"adreno*%8##%", "qualcomm", "adreno-8xx"},
    {"adreno*%7##%", "qualcomm", "adreno-7xx"},
    {"adreno*%6##%", "qualcomm", "adreno-6xx"},
    {"adreno*%5##%", "qualcomm", "adreno-5xx"},
    {"adreno*%[34]##%", "qualcomm", "adreno-4xx"},
    {"adreno", "qualcomm", "adreno"},
    {"mali-t#", "arm", "mali-midgard"},
    {"mali-g(31|51|52|71|72|76)%", "arm", "mali-bifrost"},
    {"(mali-g(57|68|77|78|310|510|610|615|710|715)|immortalis-g715)", "arm", "mali-valhall"},
    {"(mali|immortalis)-g(1|620|625|720|725|925)%", "arm", "mali-5th-generation"},
    {"(mali|immortalis)", "arm", "mali"},
    {"powervr sgx", "imagination", "powervr-sgx"},
    {"powervr rogue", "imagination", "powervr-rogue"},
    {"(powervr [abcde]-series|powervr *%[abcd]x[etms]-|powervr volcanic)", "imagination", "powervr-volcanic"},
    {"powervr", "imagination", "powervr"},
    {"(^apple m1%|^apple a14%)", "apple", "apple-7"},
    {"(^apple m2%|^apple a1[56]%)", "apple", "apple-8"},
    {"(^apple m[34]%|^apple a1[78]%)", "apple", "apple-9"},
    {"(^apple m#|^apple a#)", "apple", "apple-gpu"},
    {"(rtx( |)50##|nvidia (g|)b[123]00%|blackwell)", "nvidia", "nvidia-blackwell"},
    {"nvidia (g|)h([128]00|20)%", "nvidia", "nvidia-hopper"},
    {"(rtx( |)40##|nvidia l(4|20|40(s|))%|%ada generation)", "nvidia", "nvidia-ada"},
    {"(rtx( |)(30##|2050)|rtx a####|(nvidia |^)a(2|10(g|)|16|30|40|100|800)%)", "nvidia", "nvidia-ampere"},
    {"(rtx( |)20[678]#|gtx( |)16##|(nvidia|tesla) t4(g|)%|titan rtx|quadro (rtx|t#)"
     "|mx450)", "nvidia", "nvidia-turing"},
    {"(tesla v100|titan v%|gv100)", "nvidia", "nvidia-volta"},
    {"(gt(x|)( |)10##|tesla p(4|40|100)%|quadro p#|<gtx >titan x(p|)%|mx[123]#0%)", "nvidia", "nvidia-pascal"},
    {"(gtx (9##|750|titan x)|9#0m(x|)%|tesla m(4|40|60)%|quadro m#)", "nvidia", "nvidia-maxwell"},
    {"(gt(x|) [67]##|gtx titan|tesla k#|grid k#|9#0a%|quadro k#)", "nvidia", "nvidia-kepler"},
    {"(gt(x|) [45]##|tesla [cm]20##)", "nvidia", "nvidia-fermi"},
    {"(nvidia|geforce|quadro|tesla|%grid%)", "nvidia", "nvidia"},
    {"(gfx(908|90a|94#|950)|instinct mi###|%mi###(x|)%)", "amd", "amd-cdna"},
    {"(gfx12##|radeon* rx 9###)", "amd", "amd-rdna4"},
    {"(gfx11##|radeon* rx 7###|pro w7###|radeon 7[4678]0m)", "amd", "amd-rdna3"},
    {"(gfx103#|radeon* rx 6###|pro w6###|radeon 6[68]0m)", "amd", "amd-rdna2"},
    {"(gfx101#|radeon* rx 5###%)", "amd", "amd-rdna1"},
    {"(radeon hd [456]###|%(turks|caicos|barts|cayman)%)", "amd", "amd-terascale"},
    {"(gfx[6789]|vega|instinct mi##%|radeon* rx( |)[45]##%|radeon ((pro )|)[45]##%"
     "|firepro|radeon (r[579]|hd [78]###|vii)%|%(ellesmere|baffin|hawaii|fiji|tonga"
     "|tahiti|pitcairn|oland|bonaire|capeverde)%)", "amd", "amd-gcn"},
    {"(%amd%|radeon|advanced micro)", "amd", "amd"},
    {"(data center gpu max|ponte vecchio)", "intel", "intel-xe-hpc"},
    {"%arc%* b##(#|)%", "intel", "intel-xe2"},
    {"(%arc%|data center gpu flex)", "intel", "intel-xe-hpg"},
    {"(iris*xe|uhd graphics 7##)", "intel", "intel-xe-lp"},
    {"(gen11|iris*plus* (g4|g7)%)", "intel", "intel-gen11"},
    {"((u|)hd graphics (p|)[56]##%|iris* (5|6)##%|gen9|skylake|kaby( |)lake)", "intel", "intel-gen9"},
    {"(broadwell|hd graphics [56]###%|gen8|iris* 6###%)", "intel", "intel-gen8"},
    {"(haswell|ivy( |)bridge|hd graphics 4###%|gen7|iris* 5###%|^iris(( pro)|)$)", "intel", "intel-gen7"},
    {"(raptorlake|alderlake|tigerlake|rocketlake)", "intel", "intel-xe-lp"},
    {"(intel*graphics|%(u|)hd graphics%|^intel*%graphics%)", "intel", "intel-gpu"},
    {NULL, NULL, NULL}};
const tier_rule POCL_MARCHES[] = {
    {"^(skylake-avx512|skx|cascadelake|cooperlake|cannonlake|icelake|tigerlake"
     "|rocketlake|sapphirerapids|emeraldrapids|graniterapids|znver[45]|knl|x86-64-v4)", NULL, "cpu-avx512"},
    {"^(haswell|broadwell|skylake|alderlake|raptorlake|meteorlake|arrowlake|lunarlake"
     "|gracemont|sierraforest|bdver4|znver[123]|x86-64-v3)", NULL, "cpu-avx2"},
    {"^(cortex|neoverse|apple|exynos|kryo|falkor|thunderx|a64fx|ampere)", NULL, "cpu-neon"},
    {NULL, NULL, NULL}};
const tier_rule CPU_VENDORS[] = {
    {"(%amd%|epyc|ryzen|threadripper|znver|bdver|btver)", "amd", NULL},
    {"(intel|xeon|atom|celeron|pentium)", "intel", NULL},
    {"(%arm%|cortex|neoverse)", "arm", NULL},
    {"%apple%", "apple", NULL},
    {NULL, NULL, NULL}};
const char POCL_NAME[] = "^(pthread|basic|cpu-minimal|cpu)-&";
const char CPU_NAME[] = "(%(cpu|xeon|epyc|ryzen|threadripper|atom|celeron|pentium)%|%core\\(tm\\)"
     "|cortex-[ax])";
const char GRAPHICS_NAME[] = "(Graphics|Radeon|%GPU%)";
const char INTEL_VENDOR[] = "^Intel";
const char INTEL_RUNS_NAME[] = "(EPYC|Ryzen|Threadripper)";

static const char *const DEVICE_TYPES[] = {"cpu", "gpu", "accelerator", NULL};
const form IDENTITY = {
    .what = "device identity", .row_bytes = sizeof(identity), .least_bytes = 284,
    .is_closed = true, .check = check_identity, .count = 17, .fields = (const field[]){
        {"platform", A_TEXT, IN(identity, platform)},
        {"platform_version", A_TEXT, IN(identity, platform_version)},
        {"name", A_TEXT, IN(identity, name)},
        {"vendor", A_TEXT, IN(identity, vendor)},
        {"driver_version", A_TEXT, IN(identity, driver_version)},
        {"device_version", A_TEXT, IN(identity, device_version)},
        {"device_type", A_NAME, IN(identity, device_type), .names = DEVICE_TYPES},
        {"compute_units", A_NUMBER, IN(identity, compute_units)},
        {"max_work_group_size", A_NUMBER, IN(identity, max_work_group_size)},
        {"max_work_item_sizes", THREE, IN(identity, max_work_item_sizes)},
        {"local_memory_bytes", A_NUMBER, IN(identity, local_memory_bytes)},
        {"global_memory_bytes", A_NUMBER, IN(identity, global_memory_bytes)},
        {"max_allocation_bytes", A_NUMBER, IN(identity, max_allocation_bytes)},
        {"base_address_alignment_bytes", A_NUMBER, IN(identity, base_address_alignment_bytes)},
        {"preferred_float_width", A_NUMBER, IN(identity, preferred_float_width)},
        {"extensions", TEXTS, MANY(identity, extensions, extension_count)},
        {"driver", A_TEXT, IN(identity, driver)},
    }};

static const char *const MEMORY_TYPES[] = {[RAW] = "raw", [MEMHANDLE] = "memhandle", NULL};
static const form TENSOR = {
    .what = "tensor", .row_bytes = sizeof(tensor_record), .least_bytes = 37,
    .check = check_tensor, .count = 4, .fields = (const field[]){
        {"name", A_TEXT, IN(tensor_record, shown.name)},
        {"shape", DIMENSIONS, FEW(tensor_record, shown.shape, shown.rank, 16)},
        {"dtype", A_NAME, IN(tensor_record, shown.dtype), .names = DTYPES},
        {"memory_type", A_CHOICE, IN(tensor_record, memory_type), .names = MEMORY_TYPES},
    }};

static const char *const KINDS[] = {[INPUT] = "input", [OUTPUT] = "output", [ARENA] = "arena", [WEIGHTS] = "weights",
    [PACKED] = "packed", [COUNTERS] = "counters", [STATUS] = "status", NULL};
const form ARGUMENT = {
    .what = "buffer", .row_bytes = sizeof(argument), .least_bytes = 1,
    .read = read_argument, .count = 4, .fields = (const field[]){
        {"kind", A_CHOICE, IN(argument, kind), .names = KINDS},
        {"index", A_NUMBER, IN(argument, index)},
        {"offset", A_NUMBER, IN(argument, offset)},
        {"nbytes", A_NUMBER, IN(argument, nbytes)},
    }};

static const form LAUNCH = {
    .what = "launch", .row_bytes = sizeof(launch), .least_bytes = 70,
    .count = 9, .fields = (const field[]){
        {"operation", A_TEXT, IN(launch, operation)},
        {"task", A_TEXT, IN(launch, task)},
        {"program", A_NUMBER, IN(launch, program)},
        {"entry", A_TEXT, IN(launch, entry)},
        {"global_size", DIMENSIONS, FEW(launch, global_size, dimensions, 3)},
        {"local_size", DIMENSIONS, FEW(launch, local_size, dimensions, 3)},
        {"arguments", ROWS, MANY(launch, arguments, argument_count), .form = &ARGUMENT},
        {"writes", SIZES, MANY(launch, writes, write_count), .optional = true},
        {"offsets", A_FLAG, IN(launch, offsets), .optional = true},
    }};

static const form STATE_PAIR = {
    .what = "state", .row_bytes = sizeof(state_pair), .least_bytes = 22,
    .count = 3, .fields = (const field[]){
        {"input", A_TEXT, IN(state_pair, input)},
        {"output", A_TEXT, IN(state_pair, output)},
        {"axis", A_SIGNED, IN(state_pair, axis)},
    }};

static const form TOKEN_AXIS = {
    .what = "tokens", .row_bytes = sizeof(token_axis), .least_bytes = 13,
    .count = 2, .fields = (const field[]){
        {"name", A_TEXT, IN(token_axis, name)},
        {"axis", A_NUMBER, IN(token_axis, axis)},
    }};

static const form STATES = {
    .what = "states", .row_bytes = sizeof(state_record), .least_bytes = 63,
    .count = 7, .fields = (const field[]){
        {"length", A_TEXT, IN(state_record, length)},
        {"tokens", A_NUMBER, IN(state_record, tokens)},
        {"capacity", A_NUMBER, IN(state_record, capacity)},
        {"token_inputs", ROWS, MANY(state_record, token_inputs, token_input_count), .form = &TOKEN_AXIS},
        {"token_outputs", ROWS, MANY(state_record, token_outputs, token_output_count), .form = &TOKEN_AXIS},
        {"pairs", ROWS, MANY(state_record, pairs, pair_count), .form = &STATE_PAIR},
        {"whole", A_FLAG, IN(state_record, whole), .optional = true},
    }};

static const char *const ARGUMENT_FORMS[] = {[SUB_BUFFERS] = "sub_buffers", [BUFFERS] = "buffers", [SVM] = "svm",
    [OFFSETS] = "offsets", NULL};
static const form GRAPH = {
    .what = "graph", .row_bytes = sizeof(graph_record), .least_bytes = 47,
    .check = check_graph, .count = 10, .fields = (const field[]){
        {"name", A_TEXT, IN(graph_record, info.name)},
        {"inputs", ROWS, MANY(graph_record, inputs, info.input_count), .form = &TENSOR},
        {"outputs", ROWS, MANY(graph_record, outputs, info.output_count), .form = &TENSOR},
        {"launches", ROWS, MANY(graph_record, launches, info.launch_count), .form = &LAUNCH},
        {"arena_bytes", SIZES, MANY(graph_record, arenas, arena_count)},
        {"persistent", ROWS, MANY(graph_record, persistent, persistent_count), .form = &LAUNCH, .optional = true},
        {"counter_bytes", A_NUMBER, IN(graph_record, counter_bytes), .optional = true},
        {"arena_bound_bytes", A_NUMBER, IN(graph_record, arena_bound_bytes), .optional = true},
        {"argument_form", A_CHOICE, IN(graph_record, argument_form), .names = ARGUMENT_FORMS, .optional = true},
        {"states", A_ROW, IN(graph_record, states), .form = &STATES, .optional = true},
    }};

static const form FILE_RECORD = {
    .what = "file", .row_bytes = sizeof(file_record), .least_bytes = 15,
    .count = 2, .fields = (const field[]){
        {"name", A_TEXT, IN(file_record, name)},
        {"sha256", A_TEXT, IN(file_record, sha256)},
    }};

static const form MODEL = {
    .what = "model", .row_bytes = sizeof(model_record), .least_bytes = 32,
    .count = 4, .fields = (const field[]){
        {"name", A_TEXT, IN(model_record, name)},
        {"sha256", A_TEXT, IN(model_record, sha256)},
        {"weights", ROWS, MANY(model_record, weights, weight_count), .form = &FILE_RECORD},
        {"graphs", TEXTS, MANY(model_record, graphs, graph_count)},
    }};

static const form PROGRAM = {
    .what = "program", .row_bytes = sizeof(program_entry), .least_bytes = 26,
    .count = 4, .fields = (const field[]){
        {"binary", A_NUMBER, IN(program_entry, binary)},
        {"source", A_NUMBER, IN(program_entry, source)},
        {"options", A_TEXT, IN(program_entry, options)},
        {"needs", TEXTS, MANY(program_entry, needs, need_count), .optional = true},
    }};

static const form SECTION = {
    .what = "section", .row_bytes = sizeof(section), .least_bytes = 31,
    .check = check_section, .count = 5, .fields = (const field[]){
        {"kind", A_TEXT, IN(section, kind)},
        {"offset", A_NUMBER, IN(section, offset)},
        {"length", A_NUMBER, IN(section, nbytes)},
        {"sha256", A_TEXT, IN(section, sha256)},
        {"inflated", A_NUMBER, IN(section, inflated), .optional = true},
    }};

const form REQUIREMENTS = {
    .what = "header", .row_bytes = sizeof(context), .least_bytes = 1,
    .check = check_requirements, .count = 1, .fields = (const field[]){
        {"requires", TEXTS, MANY(context, requires, require_count), .optional = true},
    }};

const form HEADER = {
    .what = "header", .row_bytes = sizeof(context), .least_bytes = 370,
    .count = 12, .fields = (const field[]){
        {"graphs", ROWS, MANY(context, graphs, graph_count), .form = &GRAPH},
        {"programs", ROWS, MANY(context, programs, program_count), .form = &PROGRAM},
        {"weights", SIZES, MANY(context, weights, weight_count)},
        {"sections", ROWS, MANY(context, sections, section_count), .form = &SECTION},
        {"device", A_ROW, IN(context, device), .form = &IDENTITY},
        {"tier", A_TEXT, IN(context, tier)},
        {"configuration", A_MAP, .most = 32},
        {"versions", A_MAP, .most = 0},
        {"computes", A_FLAG, IN(context, computes)},
        {"packing", ROWS, MANY(context, packing, packing_count), .form = &GRAPH, .optional = true},
        {"requires", TEXTS, MANY(context, requires, require_count), .optional = true},
        {"models", ROWS, MANY(context, models, model_count), .form = &MODEL, .optional = true},
    }};

static const form NEED = {
    .what = "memory block", .row_bytes = sizeof(need), .least_bytes = 4,
    .is_list = true, .count = 3, .fields = (const field[]){
        {"name", A_TEXT, IN(need, name)},
        {"arena_bytes", SIZES, MANY(need, arenas, arena_count)},
        {"bound_bytes", A_NUMBER, IN(need, bound)},
    }};

const form MEMORY = {
    .what = "memory block", .row_bytes = sizeof(memory), .least_bytes = 20,
    .count = 2, .fields = (const field[]){
        {"alignment", A_NUMBER, IN(memory, alignment)},
        {"graphs", ROWS, MANY(memory, graphs, graph_count), .form = &NEED},
    }};

static const form ENTRY = {
    .what = "context", .row_bytes = sizeof(part), .least_bytes = 379,
    .check = check_entry, .count = 8, .fields = (const field[]){
        {"name", A_TEXT, IN(part, name)},
        {"tier", A_TEXT, IN(part, packed.tier)},
        {"device", A_ROW, IN(part, packed.device), .form = &IDENTITY},
        {"computes", A_FLAG, IN(part, packed.computes)},
        {"head", A_NUMBER, IN(part, packed.head)},
        {"sections", SIZES, MANY(part, packed.sections, packed.section_count)},
        {"nbytes", A_NUMBER, IN(part, packed.nbytes)},
        {"sha256", A_DIGEST, IN(part, packed.sha256)},
    }};

static const form PACKED_SECTION = {
    .what = "section", .row_bytes = sizeof(section), .least_bytes = 37,
    .is_list = true, .count = 3, .fields = (const field[]){
        {"kind", A_NUMBER, IN(section, offset)},
        {"length", A_NUMBER, IN(section, nbytes)},
        {"sha256", A_DIGEST, IN(section, sha256)},
    }};

const form INDEX = {
    .what = "package", .row_bytes = sizeof(gputune_file), .least_bytes = 21,
    .count = 2, .fields = (const field[]){
        {"contexts", ROWS, MANY(gputune_file, parts, part_count), .form = &ENTRY},
        {"sections", ROWS, MANY(gputune_file, sections, section_count), .form = &PACKED_SECTION},
    }};
