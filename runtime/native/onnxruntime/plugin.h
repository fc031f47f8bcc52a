/* What the parts of the plugin for onnxruntime share. */
#ifndef GPUTUNE_ONNXRUNTIME_PLUGIN_H
#define GPUTUNE_ONNXRUNTIME_PLUGIN_H

#include "../src/files/reading.h"
#include "../src/graphs/graph.h"
#include "tables.h"

#define EP_NAME "GputuneExecutionProvider"
#define OPTION_PREFIX "ep.gputuneexecutionprovider."
enum { LONGEST_PRESET = 64 };
#define PLUGIN_VERSION "0.1.0" /* gputune's; a test compares them */

/* An open device, for all sessions of the factory that use it. */
typedef struct opened {
    struct opened *next;
    gputune_device *device;
    const char *library, *name; /* the options by which it was opened, in the device's pool */
    size_t users;
} opened;

/* What the nodes of a session have in common; with ep.share_ep_contexts, those of several sessions. */
typedef struct sharing {
    size_t owners;
    bool is_public; /* of several sessions */
    struct shared_file {
        struct shared_file *next;
        gputune_file *file;
        char path[];
    } *files;
    struct shared_group {
        struct shared_group *next;
        opened *device;
        gputune_group *group;
    } *groups;
} sharing;

typedef struct factory {
    ort_factory table; /* first: onnxruntime has pointers to it */
    const ort_api *api;
    const ort_ep_api *ep_api;
    const ort_logger *logger;
    unsigned version; /* of onnxruntime: 1000 * major + minor */
    ort_hardware *hardware; /* made here */
    mutex lock; /* of what follows */
    opened *devices, *first; /* first: which onnxruntime was told of */
    sharing *sharing;        /* of the sessions with ep.share_ep_contexts; NULL: the next one begins anew */
} factory;

typedef struct options { /* of a session; "": not given */
    const char *perf_profile, *profiling_level, *profiling_file_path, *cache_compatibility_mode, *device,
        *opencl_library, *context_enable, *context_file_path, *share, *stop;
} options;

/* An EPContext node of ours, as GetCapability has found it. */
typedef struct claimed {
    size_t id;
    const char *name, *output; /* output: its first */
    const char *graph;         /* of its context; "": the first */
    bool is_main;
    struct claimed *main; /* whose context it uses; NULL: there is none */
    const char *path;     /* of a main node's context, or */
    const uint8_t *bytes; /* the context itself */
    size_t nbytes;
    gputune_file *file; /* once it is open */
    gputune_error wrong;
} claimed;

typedef struct provider {
    ort_ep table; /* first */
    factory *factory;
    const ort_logger *logger;
    options options;
    gputune_error wrong; /* with the options */
    pool pool, claims; /* claims: until they are compiled */
    claimed *claimed;
    size_t claimed_count;
    bool answered; /* it had a node to claim, or was told to have none */
    opened *device;
    sharing *sharing;
    gputune_profile *profile;
    char *compatibility;
    mutex lock; /* of what follows */
    bool efficient;           /* ep.dynamic.workload_type */
    size_t overriding;        /* runs that have a perf profile of their own */
    char override[LONGEST_PRESET]; /* the newest of those */
    struct segment *segments;
} provider;

typedef struct segment { /* a fused node: a loaded graph */
    ort_compute table; /* first */
    struct segment *next;
    provider *provider;
    gputune_graph *graph;
    size_t told; /* warnings that were logged */
    pool pool;
    struct port { /* where onnxruntime has a tensor of the graph */
        const gputune_tensor *tensor;
        size_t place;
        int64_t shape[GPUTUNE_MOST_DIMENSIONS];
        bool checked; /* its shape is to be checked in each run */
    } *inputs, *outputs;
    size_t output_count; /* that are used */
} segment;

/* factory.c */
void say(const factory *factory, const ort_logger *logger, int level, const char *format, ...) LIKE_PRINTF(4, 5);
/* An error as onnxruntime's status; NULL where nothing is wrong. */
ort_status *status_of(const factory *factory, const gputune_error *error);
/* Takes a status of onnxruntime's, which becomes the error. */
gputune_code passed(const factory *factory, ort_status *status, gputune_error *error);
#define ORT(factory, call) TRY(passed(factory, (factory)->api->call, error))
/* What a model says of contexts that were made on a device, as compatibility_info of runtime/context/ep_context.py; to
 * be freed. */
char *compatibility_of(const identity *device);
/* Who calls the following has the factory's lock. file: whose device is taken where the options name none. */
gputune_code take_device(factory *factory, const options *options, const gputune_file *file, opened **taken,
                         gputune_error *error);
void leave_device(factory *factory, opened *left);
gputune_code join_sharing(factory *factory, const options *options, sharing **joined, gputune_error *error);
void leave_sharing(factory *factory, sharing *left);
/* A file that the sharing has open. */
gputune_code open_shared(sharing *sharing, const char *path, gputune_file **file, gputune_error *error);
/* Closes the files and groups that no graph uses. */
void close_unused(factory *factory, sharing *sharing);

/* provider.c */
ort_status *create_provider(ort_factory *table, const ort_hardware *const *hardware, const ort_pairs *const *about,
                            size_t count, const ort_session_options *given, const ort_logger *logger, ort_ep **made);
void release_provider(ort_factory *table, ort_ep *released);

/* nodes.c: claims the graph's EPContext nodes; what is wrong with one of them is kept with it. */
gputune_code claim_nodes(provider *provider, const ort_graph *graph, ort_support *support, gputune_error *error);
/* The claimed node that a graph to compile consists of, with its file open. */
gputune_code find_claimed(provider *provider, const ort_graph *graph, const ort_node **node, claimed **found,
                          gputune_error *error);
void forget_claims(provider *provider);

/* segment.c */
gputune_code load_segment(provider *provider, const claimed *claimed, gputune_group *group, segment **made,
                          gputune_error *error);
/* Finds out where the fused node has the tensors of the context's graph. */
gputune_code connect_segment(segment *segment, const ort_node *node, const ort_node *fused, gputune_error *error);
void say_warnings(segment *segment);
void close_segment(segment *segment);

#endif
