/* Writes the longest texts into each buffer of a fixed size, so that a sanitizer sees what does not fit.
 *
 * texts CASE: one of those of main, which prints what was written. texts TYPE VENDOR NAME: as voting.c. */
#define main voting_main
#include "voting.c"
#undef main
#include "onnxruntime/provider.c"
#include "onnxruntime/segment.c"

enum { LETTERS = 5000 };

static char *letters(char letter, size_t count) {
    char *made = calloc(count + 1, 1);
    if (!made) exit(4);
    return memset(made, letter, count);
}

/* --- shapes and tensors ------------------------------------------------------------------------------------------- */

/* On the heap, where nothing lies behind it; a first dimension of each length, so that the last one begins anywhere. */
static void shapes(void) {
    size_t longest = 0;
    for (size_t rank = 0; rank <= GPUTUNE_MOST_DIMENSIONS + 1; rank++)
        for (size_t type = 0; type < 20; type++)
            for (int64_t first = 1; first < INT64_MAX / 10; first *= 10)
                for (int known = 0; known < 2; known++) {
                    int64_t shape[GPUTUNE_MOST_DIMENSIONS] = {first};
                    for (size_t i = 1; i < GPUTUNE_MOST_DIMENSIONS; i++) shape[i] = known ? INT64_MAX : -1;
                    char *text = malloc(LONGEST_WORDS), *name = letters('t', type);
                    if (!text) exit(4);
                    in_words(text, name, shape, rank);
                    const size_t length = strlen(text);
                    if (text[length - 1] != ']') exit(5);
                    if (length > longest) longest = length;
                    free(text), free(name);
                }
    printf("%zu of %d\n", longest, LONGEST_WORDS);
}

static void tensors(void) {
    char *name = letters('n', LETTERS), *type = letters('t', LETTERS);
    const gputune_tensor tensor = {.name = name, .dtype = type, .rank = GPUTUNE_MOST_DIMENSIONS};
    struct port port = {.tensor = &tensor};
    seen seen = {.dtype = "float32", .rank = GPUTUNE_MOST_DIMENSIONS};
    gputune_error error;
    bool knows;
    for (size_t i = 0; i < GPUTUNE_MOST_DIMENSIONS; i++) port.shape[i] = seen.shape[i] = INT64_MAX;
    check(&port, name, " in the model", &seen, &knows, &error);
    puts(error.message);
    free(name), free(type);
}

/* --- options and presets ------------------------------------------------------------------------------------------ */

static void options_of(void) {
    provider provider = {.factory = NULL};
    gputune_error error;
    gputune_perf_settings settings;
    for (size_t count = 0; count < LETTERS; count += 1 + count / 4) {
        char *key = letters('k', strlen(OPTION_PREFIX) + count), *value = letters('v', count);
        memcpy(key, OPTION_PREFIX, strlen(OPTION_PREFIX));
        read_option(&provider, key, value, &error);
        for (size_t i = 0; i < KNOWN_COUNT; i++) read_option(&provider, KNOWN[i].name, value, &error);
        gputune_preset(value, &settings, &error);
        free(key), free(value);
    }
    puts(error.message);
    pool_free(&provider.pool);
}

/* --- verdicts ----------------------------------------------------------------------------------------------------- */

static void verdicts(void) {
    for (size_t count = 0; count < LETTERS; count += 1 + count / 4)
        for (size_t from = 0; from < 6; from++) {
            char *mine = letters('m', count), *theirs = letters('t', count), *reason = malloc(REASON_BYTES);
            context context = {.computes = from < 5};
            const char **const texts[] = {&context.device.platform, &context.device.platform_version,
                                          &context.device.name, &context.device.driver_version,
                                          &context.device.device_version};
            for (size_t i = 0; i < 5; i++) *texts[i] = mine;
            const identity device = context.device;
            identity other = device;
            const char **const others[] = {&other.platform, &other.platform_version, &other.name,
                                           &other.driver_version, &other.device_version};
            for (size_t i = from; i < 5; i++) *others[i] = theirs;
            other.compute_units = UINT64_MAX;
            verdict_on(&context, NULL, &other, reason);
            if (count + 1 + count / 4 >= LETTERS) printf("%zu\n", strlen(reason));
            free(mine), free(theirs), free(reason);
        }
}

/* --- absent values of nodes --------------------------------------------------------------------------------------- */

struct ort_value_info { const char *name; };
struct ort_node { const ort_value_info *values[4]; size_t count; };
static ort_status *count_of(const ort_node *node, size_t *count) { return *count = node->count, NULL; }
static ort_status *no_values(const ort_node *node, size_t *count) { return (void)node, *count = 0, NULL; }
static ort_status *values_of(const ort_node *node, const ort_value_info **into, size_t count) {
    return memcpy(into, node->values, count * sizeof *into), NULL;
}
static ort_status *name_value(const ort_value_info *info, const char **name) { return *name = info->name, NULL; }
static ort_status *no_type(const ort_value_info *info, const ort_type **type) { return (void)info, *type = NULL, NULL; }

/* Connects a graph of three inputs with a node of which one is absent, as NULL or without a name; the fused node has a
 * value without a name, too. */
static void absent(void) {
    static const ort_api API = {.Node_GetNumInputs = count_of, .Node_GetInputs = values_of,
                                .Node_GetNumOutputs = no_values, .Node_GetOutputs = values_of,
                                .GetValueInfoName = name_value, .GetValueInfoTypeInfo = no_type};
    static const ort_value_info NAMED[] = {{"a"}, {"b"}, {"c"}}, NAMELESS = {""};
    static const gputune_tensor TENSORS[] = {{.name = "first", .dtype = "nothing"}, {.name = "second", .dtype = "nothing"},
                                             {.name = "third", .dtype = "nothing"}};
    factory factory = {.api = &API};
    provider provider = {.factory = &factory};
    const graph_record record = {.info = {.name = "main", .inputs = TENSORS, .input_count = 3}};
    gputune_graph graph = {.record = &record};
    for (size_t gone = 0; gone <= 3; gone++)
        for (size_t how = 0; how < 2; how++) {
            segment segment = {.provider = &provider, .graph = &graph};
            ort_node node = {{&NAMED[0], &NAMED[1], &NAMED[2]}, 3}, fused = {{&NAMELESS, &NAMED[2], &NAMED[1], &NAMED[0]}, 4};
            gputune_error error = {GPUTUNE_OK, ""};
            if (gone < 3) node.values[gone] = how ? &NAMELESS : NULL;
            connect_segment(&segment, &node, &fused, &error);
            puts(error.code ? error.message : "good");
            pool_free(&segment.pool);
        }
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } CASES[] = {{"shapes", shapes}, {"tensors", tensors}, {"options", options_of}, {"verdicts", verdicts},
                 {"absent", absent}};
    if (argc == 4) return voting_main(argc, argv);
    for (size_t i = 0; argc == 2 && i < sizeof CASES / sizeof *CASES; i++)
        if (!strcmp(CASES[i].name, argv[1])) return CASES[i].run(), 0;
    return 2;
}
