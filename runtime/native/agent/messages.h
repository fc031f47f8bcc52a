/* What an agent and a target server say to each other. scripts/docs writes this file from the dataclasses of Python:
 * change those or scripts/c_tables.py, and not this file. */
#ifndef GPUTUNE_MESSAGES_H
#define GPUTUNE_MESSAGES_H

#include "files/reading.h"

enum { AGENT_VERSION = 6 };
typedef enum message_kind { HELLO_MESSAGE, PROOF_MESSAGE, BEGIN_MESSAGE, LIST_DEVICES_MESSAGE, OPEN_MESSAGE,
    ALLOCATE_MESSAGE, FREE_MESSAGE, WRITE_MESSAGE, FILL_MESSAGE, COPY_MESSAGE, READ_MESSAGE, READ_FILES_MESSAGE,
    KEEP_MESSAGE, CHECK_MESSAGE, BUILD_MESSAGE, HARVEST_MESSAGE, BIND_MESSAGE, FIRST_LAUNCH_MESSAGE, TIME_PASS_MESSAGE,
    LOAD_CONTEXT_MESSAGE, RUN_CONTEXT_MESSAGE, OPEN_STATE_MESSAGE, RESET_STATE_MESSAGE, READ_STATE_MESSAGE,
    BEGIN_PROFILE_MESSAGE, END_PROFILE_MESSAGE, SET_VOTES_MESSAGE, VOTE_MESSAGE, GREETING_MESSAGE, DEVICES_MESSAGE,
    OPENED_MESSAGE, DONE_MESSAGE, CONTENTS_MESSAGE, CHECKED_MESSAGE, BUILT_MESSAGE, TIMED_MESSAGE, LOADED_MESSAGE,
    RAN_MESSAGE, STEERED_MESSAGE, STARTED_MESSAGE, FAILED_MESSAGE, MESSAGE_KINDS } message_kind;
extern const form *const MESSAGES[]; /* by message_kind */
extern const char *const GIVEN_VARIABLES[], *const TOLD_VARIABLES[];

typedef struct span {
    uint64_t buffer;
    uint64_t offset;
    uint64_t nbytes;
} span;

typedef struct given {
    uint64_t buffer;
    uint64_t offset;
    uint64_t nbytes;
    int64_t scalar;
} given;

typedef struct batch {
    const size_t *bounds;
    size_t bounds_count;
    uint64_t launches;
    bool counted;
} batch;

typedef struct guarded {
    uint64_t buffer;
    uint64_t offset;
    uint64_t nbytes;
    uint64_t guard_bytes;
    uint64_t inside;
    bool summed;
} guarded;

typedef struct expected {
    uint64_t kept;
    const char *dtype;
    slice bounds;
} expected;

typedef struct seen {
    uint64_t crc32;
    uint64_t before;
    uint64_t before_distance;
    uint64_t after;
    uint64_t after_distance;
} seen;

typedef struct found {
    uint64_t wrong;
    uint64_t poisoned;
    uint64_t first;
    slice found;
    slice maximum;
} found;

typedef struct hello_message {
    uint64_t protocol;
    const char *software;
    const char *nonce;
    const char *authentication;
    const char *salt;
} hello_message;

typedef struct proof_message {
    char nothing; /* a structure of C has a member */
} proof_message;

typedef struct begin_message {
    const char *session;
    const char *earlier;
} begin_message;

typedef struct list_devices_message {
    char nothing; /* a structure of C has a member */
} list_devices_message;

typedef struct open_message {
    uint64_t place;
    bool profiling;
    const char *const *variables;
    size_t variables_count;
} open_message;

typedef struct allocate_message {
    uint64_t handle;
    uint64_t nbytes;
} allocate_message;

typedef struct free_message {
    const size_t *handles;
    size_t handles_count;
} free_message;

typedef struct write_message {
    const span *spans;
    size_t spans_count;
    const slice *data;
    size_t data_count;
} write_message;

typedef struct fill_message {
    const span *spans;
    size_t spans_count;
    const size_t *patterns;
    size_t patterns_count;
} fill_message;

typedef struct copy_message {
    const span *spans;
    size_t spans_count;
    const span *to;
    size_t to_count;
} copy_message;

typedef struct read_message {
    const span *spans;
    size_t spans_count;
} read_message;

typedef struct read_files_message {
    const char *const *paths;
    size_t paths_count;
    uint64_t within_ns;
} read_files_message;

typedef struct keep_message {
    uint64_t handle;
    slice data;
} keep_message;

typedef struct check_message {
    const guarded *zones;
    size_t zones_count;
    const expected *expected;
    size_t expected_count;
} check_message;

typedef struct build_message {
    uint64_t handle;
    const char *source;
    const char *options;
    slice binary;
} build_message;

typedef struct harvest_message {
    uint64_t program;
} harvest_message;

typedef struct bind_message {
    uint64_t handle;
    uint64_t program;
    const char *entry;
    size_t global_size[3], global_size_count;
    size_t local_size[3], local_size_count;
    const given *arguments;
    size_t arguments_count;
} bind_message;

typedef struct first_launch_message {
    uint64_t bound;
    bool waits;
} first_launch_message;

typedef struct time_pass_message {
    const batch *batches;
    size_t batches_count;
    uint64_t enough_ns;
} time_pass_message;

typedef struct load_context_message {
    uint64_t handle;
    slice data;
    const char *graph;
    bool strict;
    const char *const *features;
    size_t features_count;
} load_context_message;

typedef struct run_context_message {
    uint64_t context;
    const slice *inputs;
    size_t inputs_count;
    bool recorded;
    bool persistent;
    uint64_t state;
    uint64_t length;
} run_context_message;

typedef struct open_state_message {
    uint64_t handle;
    uint64_t context;
    uint64_t other;
} open_state_message;

typedef struct reset_state_message {
    uint64_t state;
} reset_state_message;

typedef struct read_state_message {
    uint64_t state;
    const char *input;
    uint64_t nbytes;
} read_state_message;

typedef struct begin_profile_message {
    uint64_t context;
    const char *level;
} begin_profile_message;

typedef struct end_profile_message {
    char nothing; /* a structure of C has a member */
} end_profile_message;

typedef struct set_votes_message {
    uint64_t place;
    const size_t *settings;
    size_t settings_count;
} set_votes_message;

typedef struct vote_message {
    bool begins;
} vote_message;

typedef struct greeting_message {
    const char *ended;
} greeting_message;

typedef struct devices_message {
    const identity *devices;
    size_t devices_count;
} devices_message;

typedef struct opened_message {
    uint64_t cache_bytes;
    const char *const *variables;
    size_t variables_count;
} opened_message;

typedef struct done_message {
    char nothing; /* a structure of C has a member */
} done_message;

typedef struct contents_message {
    const slice *data;
    size_t data_count;
} contents_message;

typedef struct checked_message {
    const seen *seen;
    size_t seen_count;
    const found *found;
    size_t found_count;
} checked_message;

typedef struct built_message {
    uint64_t build_ns;
} built_message;

typedef struct timed_message {
    slice wall_ns;
    slice times;
} timed_message;

typedef struct loaded_message {
    const char *const *warnings;
    size_t warnings_count;
    uint64_t load_ns;
} loaded_message;

typedef struct ran_message {
    const slice *outputs;
    size_t outputs_count;
    uint64_t elapsed_ns;
    const char *form;
} ran_message;

typedef struct steered_message {
    const char *const *controls;
    size_t controls_count;
} steered_message;

typedef struct started_message {
    char nothing; /* a structure of C has a member */
} started_message;

typedef struct failed_message {
    const char *status;
    const char *message;
} failed_message;

#endif
